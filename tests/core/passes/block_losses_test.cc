// Losses in blocks of rows: which nets change, and that their loss and gradients are those of the net as it was.
#include "core/passes/block_losses.h"

#include <gtest/gtest.h>

#include "core/passes/recompute.h"
#include "stepnet/random.h"
#include "tests/core/gradient_testing.h"
#include "tests/core/recompute_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::block_losses_test {
namespace {

GradientRequest request_of(const std::set<std::string>& wanted) {
  GradientRequest request;
  request.targets = {{"loss", ""}};
  request.wanted = wanted;
  return request;
}

std::map<std::string, TensorType> types_of(const Feeds& feeds) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, value] : feeds) types[name] = TensorType::of(value.dtype(), value.shape());
  return types;
}

const Lines kModel = {"h = Tanh(x)", "s = FC(h, W, b)", "p, loss = SoftmaxWithLoss(s, t)"};

Feeds model_feeds() {
  return {{"x", normal<double>({6, 4}, 1)},
          {"W", normal<double>({5, 4}, 2)},
          {"b", normal<double>({5}, 3)},
          {"t", integers<int32_t>({6}, 0, 4, 4)},
          {"w", uniform<double>({6}, 0.5, 2, 5)}};
}

int changed(const Lines& lines, const std::set<std::string>& wanted = {"x", "W", "b"},
            const Feeds& feeds = model_feeds()) {
  NetDef net = net_of_lines(lines);
  const GradientRequest request = request_of(wanted);
  return block_losses(net, &request, types_of(feeds), 0);
}

// The loss and all wanted gradients.
std::map<std::string, Tensor> results(NetDef net, const Feeds& feeds, const GradientRequest& request) {
  GradientResult result = add_gradient_operators(net, request);
  leave_gradients_in_place(net, result);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  Net bound(net, workspace);
  RunContext run;
  for (int i = 0; i < 2; ++i) bound.run(run);
  std::map<std::string, Tensor> all = {{"loss", workspace.fetch("loss").clone()}};
  for (const std::string& name : request.wanted)
    if (const auto it = result.gradients.find(name); it != result.gradients.end() && it->second.defined())
      all[name] = workspace.fetch(it->second.dense).clone();
  return all;
}

std::string difference(const NetDef& net, const Feeds& feeds, const GradientRequest& request, int changes) {
  NetDef blocks = net;
  if (const int count = block_losses(blocks, &request, types_of(feeds), 0); count != changes)
    return fmt::format("{} losses changed", count);
  const auto is = results(blocks, feeds, request), should = results(net, feeds, request);
  if (is.size() != should.size()) return fmt::format("{} results of {}", is.size(), should.size());
  for (const auto& [name, value] : should)
    if (const std::string found = compare(is.at(name), value, 1e-12); !found.empty()) return name + ": " + found;
  return "";
}

TEST(BlockLosses, TakeThePlaceOfScores) {
  NetDef net = net_of_lines(kModel);
  GradientRequest request = request_of({"x", "W", "b"});
  EXPECT_EQ(block_losses(net, &request, types_of(model_feeds()), 0), 1);
  GradientResult result = add_gradient_operators(net, request);
  leave_gradients_in_place(net, result);
  EXPECT_EQ(lines_of(net),
            (Lines{"h = Tanh(x)", "loss, h_grad, W_grad, b_grad = FCSoftmaxWithLoss(h, W, t, b)",
                   "loss_autogen_grad = ConstantFill(loss)",
                   "h_grad, W_grad, b_grad = FCSoftmaxWithLossGradient(loss_autogen_grad, h_grad, W_grad, b_grad)",
                   "x_grad = TanhGradient(h, h_grad)"}));
}

TEST(BlockLosses, MakeOnlyTheGradientsThatAreWanted) {
  const Feeds feeds = model_feeds();
  for (const std::set<std::string>& wanted :
       {std::set<std::string>{"x"}, {"W"}, {"b"}, {"x", "b"}, {"W", "b"}, {"x", "W", "b"}})
    EXPECT_EQ(difference(net_of_lines(kModel), feeds, request_of(wanted), 1), "") << *wanted.begin() << wanted.size();
}

TEST(BlockLosses, OfANetThatIsNotDifferentiated) {
  NetDef net = net_of_lines(kModel);
  EXPECT_EQ(block_losses(net, nullptr, types_of(model_feeds()), 0), 1);
  EXPECT_EQ(lines_of(net), (Lines{"h = Tanh(x)", "loss = FCSoftmaxWithLoss(h, W, t, b)"}));
}

TEST(BlockLosses, StayWhereOthersReadScoresOrProbabilities) {
  EXPECT_EQ(changed(kModel), 1);
  for (const char* reader : {"q = Sqr(s)", "q = Sqr(p)", "q = Shape(s)", "q = Alias(s)"}) {
    Lines lines = kModel;
    lines.emplace_back(reader);
    EXPECT_EQ(changed(lines), 0) << reader;
  }
  Lines both = kModel;
  both[2] = "p, l = SoftmaxWithLoss(s, t)";
  both.insert(both.end(), {"q = SumSqrElements(p)", "loss = Sum(l, q)"});
  EXPECT_EQ(changed(both), 0);
  for (const char* seen : {"s", "p"}) {
    NetDef net = net_of_lines(kModel);
    net.add_external_output(seen);
    const GradientRequest request = request_of({"x"});
    EXPECT_EQ(block_losses(net, &request, types_of(model_feeds()), 0), 0) << seen;
  }
}

TEST(BlockLosses, StayWhereTheOperatorCannotDoWhatTheyDo) {
  EXPECT_EQ(changed({"h = Tanh(x)", "s = FC(h, W, b)", "p, loss = SoftmaxWithLoss(s, t, w)"}), 1);
  EXPECT_EQ(changed({"h = Tanh(x)", "s = FC(h, W, b)", "p, loss = SoftmaxWithLoss(s, t, w)"}, {"x", "w"}), 0);
  EXPECT_EQ(changed({"h = Tanh(x)", "s = FC(h, W, b)", "p, loss = SoftmaxWithLoss(s, t) label_prob=1"}), 0);
  EXPECT_EQ(changed({"h = Tanh(x)", "s = FC(h, W, b)", "p, loss = SoftmaxWithLoss(s, t) axis=0"}), 0);
  EXPECT_EQ(changed({"h = Tanh(x)", "z = FC(h, W, b)", "s = Relu(z)", "p, loss = SoftmaxWithLoss(s, t)"}), 0);
  EXPECT_EQ(changed({"V = Copy(W)", "s = FC(x, V, b)", "p, loss = SoftmaxWithLoss(s, t)"}), 0);  // of no known type
  EXPECT_EQ(changed({"s = FC(x, W, b)", "s = Scale(s)", "p, loss = SoftmaxWithLoss(s, t)"}), 0);
  EXPECT_EQ(changed({"h = Copy(x)", "s = FC(h, W, b)", "h = Tanh(h)", "p, loss = SoftmaxWithLoss(s, t)"}, {"b"}), 0);
  NetDef net = net_of_lines(kModel);
  const GradientRequest request = request_of({"x"});
  EXPECT_EQ(block_losses(net, &request, types_of(model_feeds()), 241), 0);  // bytes; there are 240 of scores
  EXPECT_EQ(block_losses(net, &request, {}, 0), 0);
  std::map<std::string, TensorType> halves = types_of(model_feeds());
  halves["W"].dtype = DType::bfloat16;
  EXPECT_EQ(block_losses(net, &request, halves, 0), 0);
  net.mutable_device_option()->set_device_type(CUDA);
  EXPECT_EQ(block_losses(net, &request, types_of(model_feeds()), 0), 0);
}

// Several losses, of which one is an ordinary one; weights that other operators read too; losses that are scaled and
// added up.
TEST(BlockLosses, OfRandomNetsAreThoseOfWholeScores) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    auto draw = [seed, n = uint64_t{0}](int64_t most) mutable { return random_int(seed, ++n, 0, most); };
    const int64_t rows = draw(9), width = 1 + draw(4), classes = 1 + draw(5), groups = 1 + draw(2);
    const bool deep = draw(1) == 1, biased = draw(1) == 1, weighted = draw(2) == 0, tied = draw(1) == 1;
    const Shape x = deep ? Shape{groups, rows, width} : Shape{rows, width};
    const int64_t count = deep ? groups * rows : rows;
    Feeds feeds = {{"x", normal<double>(x, seed)},
                   {"U", normal<double>({width, width}, seed + 1)},
                   {"W", normal<double>({classes, width}, seed + 2)},
                   {"b", normal<double>({classes}, seed + 3)},
                   {"t", integers<int32_t>({count}, 0, classes - 1, seed + 4)},
                   {"w", uniform<double>({count}, 0, 2, seed + 5)},
                   {"other", normal<double>({3, width}, seed + 6)}};
    if (draw(1) == 1) feeds[4].second = integers<int64_t>({count}, 0, classes - 1, seed + 4);
    const std::string axis = deep ? " axis=2" : "", b = biased ? ", b" : "", w = weighted ? ", w" : "";
    Lines lines = {"z = FC(x, U)" + axis, "h = Tanh(z)", "s = FC(h, W" + b + ")" + axis,
                   "p, l = SoftmaxWithLoss(s, t" + w + ")" + (draw(1) == 1 && deep ? axis : " axis=-1")};
    int losses = 1;
    std::string sum = "l";
    if (tied) lines.emplace_back("o = FC(other, W)"), lines.emplace_back("q = SumSqrElements(o)"), sum += ", q";
    if (draw(1) == 1) {
      lines.emplace_back("s2 = FC(z, W" + b + ")" + axis);
      lines.emplace_back("p2, l2 = SoftmaxWithLoss(s2, t) axis=-1");
      sum += ", l2", ++losses;
    }
    if (draw(1) == 1) {
      lines.emplace_back("s3 = FC(h, W" + b + ")" + axis);
      lines.emplace_back("p3, l3 = SoftmaxWithLoss(s3, t) axis=-1");
      lines.emplace_back("q3 = SumSqrElements(s3)");
      sum += ", l3, q3";
    }
    lines.emplace_back("all = Sum(" + sum + ")");
    lines.emplace_back(draw(1) == 1 ? "loss = Copy(all)" : "loss = Sqr(all)");
    NetDef net = net_of_lines(lines);
    if (draw(1) == 1) *net.mutable_op(3)->add_arg() = make_arg("scale", 0.25F);
    std::set<std::string> wanted = {"x", "U", "W"};
    if (biased) wanted.insert("b");
    if (draw(2) == 0) wanted = {"W"};
    if (draw(3) == 0) wanted = {"x"};
    ASSERT_EQ(difference(net, feeds, request_of(wanted), losses), "") << "seed " << seed << "\n"
                                                                      << fmt::format("{}", fmt::join(lines, "\n"));
  }
}

// Scores, probabilities and the scores' gradient of 1.5 MB each become one block.
TEST(BlockLosses, TakeFewerBytesAsEstimated) {
  constexpr int64_t kRows = 768, kClasses = 512, kWidth = 8;
  const Feeds feeds = {{"x", normal<float>({kRows, kWidth}, 1)},
                       {"W", normal<float>({kClasses, kWidth}, 2)},
                       {"b", normal<float>({kClasses}, 3)},
                       {"t", integers<int32_t>({kRows}, 0, kClasses - 1, 4)}};
  const std::vector<std::string> trained = {"W", "b"};
  const TrainingCase plain = training_case("scores", kModel, feeds, trained);
  NetDef forward = net_of_lines(kModel);
  const GradientRequest request = request_of({"W", "b"});
  ASSERT_EQ(block_losses(forward, &request, types_of(feeds), 0), 1);
  *forward.mutable_op(1)->add_arg() = make_arg("block_rows", int64_t{64});
  const TrainingCase blocks = training_case("blocks", forward, feeds, trained);
  const TrainingRun is = run_training(blocks, blocks.net), should = run_training(plain, plain.net);
  // What kernels work on, as the block is, is no blob's.
  EXPECT_EQ(is.peak, dry_run_bytes(blocks.net, blocks.question).peak + 4 * 64 * kClasses);
  EXPECT_EQ(should.peak, dry_run_bytes(plain.net, plain.question).peak);
  EXPECT_LE(is.peak, should.peak - 4 * kRows * kClasses);
  for (size_t i = 0; i < is.results.size(); ++i) EXPECT_EQ(compare(is.results[i], should.results[i], 1e-5), "") << i;
}

}  // namespace
}  // namespace stepnet::testing::block_losses_test
