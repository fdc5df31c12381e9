// Bits in place of values that a backward pass only compares: which operators leave them, that all numbers keep their
// bits, and that fewer bytes are kept.
#include "recurrent/form/keep_bits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/core/recompute_testing.h"

namespace stepnet::testing::keep_bits_test {
namespace {

GradientRequest request_of(const std::set<std::string>& wanted) {
  return {.targets = {{"loss", ""}}, .wanted = wanted, .stop = {}, .fixed_storages = false};
}

// The operators of a net of these lines, which reads x, w and W, and of its backward pass, behind which bits are kept.
Lines with_bits(const Lines& lines, const std::vector<std::string>& outputs = {}, int* changed = nullptr) {
  NetDef net = net_of_lines(lines);
  net.mutable_external_output()->Add(outputs.begin(), outputs.end());
  const std::set<std::string> wanted = {"x", "w", "W"};
  const int count = keep_bits(net, request_of(wanted));
  if (changed) *changed = count;
  return lines_of(differentiate(net, {{"loss", ""}}, wanted).net);
}

bool has(const Lines& lines, const std::string& begin) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(begin) != line.npos; });
}

bool leaves_bits(const Lines& lines, const std::vector<std::string>& outputs = {}) {
  int changed = 0;
  const Lines found = with_bits(lines, outputs, &changed);
  EXPECT_EQ(changed > 0, has(found, "SelectByBits")) << ::testing::PrintToString(found);
  return changed > 0;
}

TEST(KeepBits, OfWhatNoOtherGradientReads) {
  const Lines found = with_bits({"h = Relu(x)", "d, mask = Dropout(h)", "y = MatMul(d, W)", "loss = SumElements(y)"});
  EXPECT_TRUE(has(found, "h, h_bits = ClipWithBits(x)"));
  EXPECT_TRUE(has(found, "h_grad = SelectByBits(d_grad, mask)"));
  EXPECT_TRUE(has(found, "x_grad = SelectByBits(h_grad, h_bits)"));
  for (const char* type : {"Relu", "LeakyRelu"})
    EXPECT_TRUE(leaves_bits({fmt::format("h = {}(x)", type), "y = Add(h, w)", "loss = SumElements(y)"})) << type;
  EXPECT_TRUE(leaves_bits({"h = Scale(x)", "h = Relu(h)", "loss = SumElements(h)"}));
}

TEST(KeepBits, NotOfWhatIsKeptAnyway) {
  EXPECT_FALSE(leaves_bits({"h = Relu(x)", "y = MatMul(h, W)", "loss = SumElements(y)"}));
  EXPECT_FALSE(leaves_bits({"h = Relu(x)", "y = Sqr(h)", "loss = SumElements(y)"}));
  EXPECT_FALSE(leaves_bits({"h = Relu(x)", "a = Alias(h)", "y = MatMul(a, W)", "loss = SumElements(y)"}));
  EXPECT_FALSE(leaves_bits({"h = Relu(x)", "loss = SumElements(h)"}, {"h"}));
  EXPECT_FALSE(leaves_bits({"h = Abs(x)", "loss = SumElements(h)"}));
  EXPECT_FALSE(leaves_bits({"h = Softplus(x)", "loss = SumElements(h)"}));
}

// A mask that is packed has another type, which others would see.
TEST(KeepBits, NotOfAMaskThatOthersHave) {
  EXPECT_TRUE(leaves_bits({"d, mask = Dropout(x)", "loss = SumElements(d)"}));
  EXPECT_FALSE(leaves_bits({"d, mask = Dropout(x)", "loss = SumElements(d)"}, {"mask"}));
  EXPECT_FALSE(leaves_bits({"d, mask = Dropout(x)", "n = Not(mask)", "c = Where(n, x, d)", "loss = SumElements(c)"}));
  EXPECT_FALSE(leaves_bits({"d, mask = Dropout(x) is_test=1", "loss = SumElements(d)"}));
}

// With an alpha of 0 or less LeakyRelu is another function, or its gradient compares X.
TEST(KeepBits, OfLeakyReluWithAPositiveAlpha) {
  for (const float alpha : {-0.5F, 0.0F, 0.3F}) {
    NetDef net = net_of_lines({"h = LeakyRelu(x)", "loss = SumElements(h)"});
    *net.mutable_op(0)->add_arg() = make_arg("alpha", alpha);
    EXPECT_EQ(keep_bits(net, request_of({"x"})), alpha > 0 ? 1 : 0) << alpha;
    EXPECT_EQ(find_arg(net.op(0), "alpha")->f(), alpha);
  }
}

TEST(KeepBits, OfClipWithAMax) {
  for (const bool bounded : {true, false}) {
    NetDef net = net_of_lines({"h = Clip(x)", "loss = SumElements(h)"});
    *net.mutable_op(0)->add_arg() = make_arg(bounded ? "max" : "min", 0.5F);
    EXPECT_EQ(keep_bits(net, request_of({"x"})), bounded ? 1 : 0);
  }
}

TEST(KeepBits, TakeNamesThatAreFree) {
  NetDef net =
      net_of_lines({"h_bits = Scale(x)", "h = Relu(x)", "h_bits_1 = Add(h, h_bits)", "loss = SumElements(h_bits_1)"});
  EXPECT_EQ(keep_bits(net, request_of({"x"})), 1);
  EXPECT_EQ(net.op(1).output(1), "h_bits_2");
}

TEST(KeepBits, OfANetThatCannotBeDifferentiatedIsAnError) {
  NetDef net = net_of_lines({"h = Relu(x)", "y = Sqr(h)", "h = Scale(h)", "loss = Add(h, y)"});
  EXPECT_NE(error_of([&] { keep_bits(net, request_of({"x"})); }).find("version"), std::string::npos);
}

// The same training net, whose forward part leaves bits.
TrainingCase case_with_bits(const TrainingCase& c, int* changed) {
  NetDef forward = c.net;
  forward.mutable_op()->DeleteSubrange(c.first_gradient_op, forward.op_size() - c.first_gradient_op);
  *changed = keep_bits(forward, request_of({c.trained.begin(), c.trained.end()}));
  Feeds feeds = c.feeds;
  std::erase_if(feeds, [](const auto& feed) { return feed.first == "one" || feed.first == "rate"; });
  return training_case(c.name, forward, feeds, c.trained);
}

// A layer's bytes: Relu's values, the mask, and what Dropout leaves for the next product.
TEST(KeepBits, OfLayersWithDropoutTakeFewerBytes) {
  constexpr int64_t kBatch = 128, kWidth = 64;
  Lines lines;
  Feeds feeds = {{"x", normal<float>({kBatch, kWidth}, 1)}};
  std::vector<std::string> trained;
  std::string at = "x";
  for (int layer = 0; layer < 6; ++layer) {
    trained.push_back(fmt::format("W{}", layer));
    feeds.emplace_back(trained.back(), normal<float>({kWidth, kWidth}, 2 + layer));
    lines.push_back(fmt::format("s{0} = MatMul({1}, W{0})", layer, at));
    lines.push_back(fmt::format("h{0} = Relu(s{0})", layer));
    lines.push_back(fmt::format("d{0}, m{0} = Dropout(h{0})", layer));
    at = fmt::format("d{}", layer);
  }
  lines.push_back("loss = AveragedLoss(" + at + ")");
  const TrainingCase plain = training_case("layers", lines, feeds, trained);
  int changed = 0;
  const TrainingCase bits = case_with_bits(plain, &changed);
  EXPECT_EQ(changed, 12);
  const TrainingRun is = run_training(bits, bits.net), should = run_training(plain, plain.net);
  EXPECT_EQ(first_difference(plain, should, is), "");
  EXPECT_EQ(is.peak, dry_run_bytes(bits.net, bits.question).peak);
  EXPECT_EQ(should.peak, dry_run_bytes(plain.net, plain.question).peak);
  // Of each element of a layer 4 bytes and 1 become 2 bits; the last layer's are there while its gradient is made.
  EXPECT_LE(is.peak, should.peak - 5 * kBatch * kWidth * 19 / 4);
}

TEST(KeepBits, OfRandomNetsHaveTheSameBits) {
  int all = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::vector<TrainingCase> cases = example_cases(seed);
    cases.push_back(random_case(seed, 12));
    for (const TrainingCase& c : cases) {
      int changed = 0;
      const TrainingCase bits = case_with_bits(c, &changed);
      all += changed;
      if (changed == 0) continue;
      ASSERT_EQ(first_difference(c, run_training(c, c.net), run_training(bits, bits.net)), "") << c.name << " " << seed;
    }
  }
  EXPECT_GT(all, 100);
}

// Gradients of gradients go through the bits.
TEST(KeepBits, OfHigherOrdersHaveTheSameBits) {
  const Lines lines = {"s = MatMul(x, W)", "h = Relu(s)", "d, mask = Dropout(h)", "l = Scale(d)",
                       "c = Clip(l)",      "t = Tanh(c)", "y = MatMul(t, W)",     "loss = SumElements(y)"};
  std::map<std::string, Tensor> found[2];
  for (const bool bits : {false, true}) {
    NetDef net = net_of_lines(lines);
    *net.mutable_op(4)->add_arg() = make_arg("max", 0.5F);
    EXPECT_EQ(bits ? keep_bits(net, request_of({"x", "W"})) : 3, 3);
    const Backward first = differentiate(net, {{"loss", ""}}, {"x", "W"});
    NetDef both = first.net;
    *both.add_op() = make_op("Sqr", {first.map.at("W")}, {"squares"});
    *both.add_op() = make_op("SumElements", {"squares"}, {"penalty"});
    const Backward second = differentiate(both, {{"penalty", ""}}, {"x", "W"});
    Workspace workspace;
    workspace.tensor("x") = normal<float>({5, 7}, 3);
    workspace.tensor("W") = normal<float>({7, 7}, 4);
    Net bound(second.net, workspace);
    RunContext run;
    bound.run(run);
    for (const char* name : {"x", "W"}) found[bits ? 1 : 0][name] = workspace.fetch(second.map.at(name)).clone();
  }
  for (const char* name : {"x", "W"}) EXPECT_EQ(compare(found[1].at(name), found[0].at(name), 0), "") << name;
}

}  // namespace
}  // namespace stepnet::testing::keep_bits_test
