// Which operators of a step net run once per block.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "tests/recurrent/programs.h"

namespace stepnet::testing::step_blocks_test {
namespace {

const CellState kH = {"h_prev", "h", "h0", "h_all", ""};

Feeds feeds_of(int64_t steps, int64_t batch) {
  return {{"X", normal<double>({steps, batch, 3}, 1)},
          {"h0", normal<double>({batch, 3}, 2)},
          {"W", normal<double>({3, 3}, 3)},
          {"U", normal<double>({3, 3}, 4)},
          {"b", normal<double>({3}, 5)},
          {"lengths", Tensor::of<int32_t>({batch}, std::vector<int32_t>(batch, 1))}};
}

OperatorCounts counts_of(const Cell& cell, const Feeds& feeds) {
  Workspace workspace;
  return operator_counts(run_programs(workspace, cell, feeds, "h_all", {"X", "h0", "W", "U", "b"}));
}

// Without fusion, which leaves hardly any operators to count.
OperatorCounts counts_of(Cell cell, int64_t steps = 9, int64_t batch = 50) {
  cell.disabled_passes.emplace_back("fuse");
  return counts_of(cell, feeds_of(steps, batch));
}

// The product with the sequence is hoisted; all of its gradient, and the other's gradients of parameters, are deferred.
TEST(StepBlocks, ElmanCell) {
  const Lines step = {"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"};
  EXPECT_EQ(counts_of({step, {kH}}), (OperatorCounts{1, 2, 3, 2}));
  EXPECT_EQ(counts_of({step, {kH}, {}, {}, {"hoist"}}), (OperatorCounts{0, 3, 3, 2}));
  EXPECT_EQ(counts_of({step, {kH}, {}, {}, {"hoist", "defer"}}), (OperatorCounts{0, 3, 0, 4}));
  EXPECT_EQ(counts_of({step, {kH}, {}, {}, {"fold"}}), (OperatorCounts{1, 3, 3, 2}));
}

TEST(StepBlocks, InReverseAsForward) {
  Cell cell = {{"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"}, {kH}};
  cell.reverse = true;
  EXPECT_EQ(counts_of(cell), (OperatorCounts{1, 2, 3, 2}));
}

// The mask of the sequence is no obstacle, forward or backward.
TEST(StepBlocks, WithLengths) {
  Cell cell = {{"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"}, {kH}};
  cell.lengths = "lengths";
  const OperatorCounts counts = counts_of(cell);
  EXPECT_EQ(counts.forward_blocks, 2);
  EXPECT_EQ(counts.backward_blocks, 4);
}

// With a batch of 50 a block has 3 timesteps, and x 3 values.
TEST(StepBlocks, TimestepsAreNotTakenForASize) {
  const Cell cell = {{"w = Cast(timestep) to=13", "m = Mul(x, w) broadcast=1", "h = Sum(m, h_prev)"}, {kH}};
  const Feeds feeds = feeds_of(9, 50);
  EXPECT_EQ(check_against_unrolled(cell, {feeds[0], feeds[1]}), "");
}

TEST(StepBlocks, ChainsAreHoistedWhole) {
  EXPECT_EQ(counts_of({{"a = FC(x, W, b) axis=2", "t = Tanh(a)", "q = Mul(t, t)", "h = Sum(q, h_prev)"}, {kH}})
                .forward_blocks,
            3);
}

// A large batch has blocks of one timestep.
TEST(StepBlocks, OneTimestepHasNoBlocks) {
  const Cell cell = {{"a = FC(x, W, b) axis=2", "h = Sum(a, h_prev)"}, {kH}};
  EXPECT_EQ(counts_of(cell, 1, 50).forward_blocks, 0);
  EXPECT_EQ(counts_of(cell, 9, 128).forward_blocks, 1);
  EXPECT_EQ(counts_of(cell, 9, 127).forward_blocks, 1);
}

// A product adds to what the first term has written, wherever that is in the net.
TEST(StepFolds, SumsOfProductsDisappear) {
  const Lines hidden_first = {"r = FC(h_prev, U, b) axis=2", "a = FC(x, W, b) axis=2", "s = Add(r, a)", "h = Tanh(s)"};
  EXPECT_EQ(counts_of({hidden_first, {kH}}).forward_steps, 2);
  const Lines three = {"r = FC(h_prev, U, b) axis=2", "a = FC(x, W, b) axis=2", "q = FC(h_prev, W, b) axis=2",
                       "s = Sum(r, a, q)", "h = Tanh(s)"};
  EXPECT_EQ(counts_of({three, {kH}, {}, {}, {"merge"}}).forward_steps, 3);
}

TEST(StepFolds, SumsStayWhereATermIsNeededOrCannotBeAdded) {
  const std::string a = "a = FC(x, W, b) axis=2", r = "r = FC(h_prev, U, b) axis=2";
  EXPECT_EQ(counts_of({{a, r, "s = Sum(a, r)", "q = Mul(r, s)", "h = Tanh(q)"}, {kH}}).forward_steps, 4);
  EXPECT_EQ(counts_of({{a, "r = Tanh(h_prev)", "s = Sum(a, r)", "h = Tanh(s)"}, {kH}}).forward_steps, 3);
  EXPECT_EQ(counts_of({{a, "s = Sum(a, a)", "q = Sum(s, h_prev)", "h = Tanh(q)"}, {kH}}).forward_steps, 2);
  EXPECT_EQ(counts_of({{a, r, "h = Sum(a, r)"}, {kH}}).forward_steps, 2);  // is linked to a row of the state
}

// What does not go through a product is written where the gradient of the state stands, by the loop before it.
TEST(StepFolds, OtherTermsAreAddedUpBeforeTheLastProduct) {
  const Feeds feeds = {{"X", normal<double>({9, 50, 8}, 1)},
                       {"h0", normal<double>({50, 8}, 2)},
                       {"W", normal<double>({8, 8}, 3)},
                       {"U", normal<double>({8, 8}, 4)},
                       {"b", normal<double>({8}, 5)}};
  const Lines product = {"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "n = Tanh(s)"};
  Cell residual = {product, {kH}}, gated = residual;
  residual.step.emplace_back("h = Sum(n, h_prev)");
  for (const char* line : {"old = Sub(h_prev, n)", "z = Sigmoid(a)", "kept = Mul(z, old)", "h = Sum(n, kept)"})
    gated.step.emplace_back(line);
  for (Cell cell : {residual, gated}) {
    EXPECT_EQ(counts_of(cell, feeds).backward_steps, 2);  // a loop and a product
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
    cell.disabled_passes = {"fold"};
    EXPECT_EQ(counts_of(cell, feeds).backward_steps, 3);
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  }
}

TEST(StepFolds, NotWhereTheSumIsReadOrWrittenOnTheWay) {
  const std::string r = "r = FC(h_prev, U, b) axis=2", t = "t = Tanh(h_prev)";
  const Feeds feeds = feeds_of(9, 50);
  for (const Lines& step : {Lines{t, r, "s = Sum(t, r)", "q = Mul(r, s)", "h = Tanh(q)"},
                            Lines{t, "s = Sum(t, x)", r, "q = Sum(s, r)", "s = Sum(t, r)", "h = Sum(q, s)"},
                            Lines{t, r, "r = Sum(r, t)", "q = Sum(r, t)", "h = Sum(q, h_prev)"}})
    EXPECT_EQ(check_against_unrolled({step, {kH}}, {feeds[0], feeds[1], feeds[3], feeds[4]}), "");
}

// In one stage with the gates: it is not a cell of its own that several operators write a gradient in turn.
TEST(StepStages, GradientsOfSlicesStayWithTheirCell) {
  Lines step = {"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "a_0, a_1 = Split(a) axis=2",
                "r_0, r_1 = Split(r) axis=2"};
  for (const char* line : {"g = Mul(a_0, r_0)", "c = Sum(a_1, r_1)", "m = Mul(g, c)", "h = Tanh(m)"})
    step.emplace_back(line);
  const Feeds feeds = {{"X", normal<double>({9, 50, 8}, 1)},
                       {"h0", normal<double>({50, 8}, 2)},
                       {"W", normal<double>({16, 8}, 3)},
                       {"U", normal<double>({16, 8}, 4)},
                       {"b", normal<double>({16}, 5)}};
  Workspace workspace;
  const RecurrentScratch& scratch = run_programs(workspace, {step, {kH}}, feeds, "h_all", {"X", "h0", "W", "U", "b"});
  EXPECT_EQ(scratch.backward->stages(), 1);
  EXPECT_EQ(operator_counts(scratch).backward_steps, 2);
  EXPECT_EQ(check_against_unrolled({step, {kH}}, feeds), "");
}

// The gradients of a normalisation's parameters read its output's shape alone, and wait for no timestep.
TEST(StepBlocks, GradientsThatReadAShapeAreDeferred) {
  const Lines step = {"r = FC(h_prev, U, b) axis=2",
                      "y, mean, std = LayerNorm(r, gain, shift) axis=2 elementwise_affine=1", "s = Sum(x, y)",
                      "h = Tanh(s)"};
  const Feeds feeds = {{"X", normal<double>({9, 50, 8}, 1)}, {"h0", normal<double>({50, 8}, 2)},
                       {"U", normal<double>({8, 8}, 4)},     {"b", normal<double>({8}, 5)},
                       {"gain", normal<double>({8}, 6)},     {"shift", normal<double>({8}, 7)}};
  Workspace workspace;
  const OperatorCounts counts =
      operator_counts(run_programs(workspace, {step, {kH}}, feeds, "h_all", {"X", "h0", "U", "b", "gain", "shift"}));
  EXPECT_EQ(counts.backward_steps, 3);  // of tanh, of the normalisation's input, of the state
  EXPECT_EQ(check_against_unrolled({step, {kH}}, feeds), "");
}

// Data of cells whose rows are long enough for the loop over pieces.
Feeds wide_feeds(int64_t width, int64_t gates) {
  Feeds feeds = {{"X", normal<double>({9, 50, width}, 1)}, {"h0", normal<double>({50, width}, 2)}};
  feeds.emplace_back("W", normal<double>({gates * width, width}, 3, 0, 0.3));
  feeds.emplace_back("U", normal<double>({gates * width, width}, 4, 0, 0.3));
  feeds.emplace_back("b", normal<double>({gates * width}, 5));
  feeds.emplace_back("v", normal<double>({width}, 6));
  return feeds;
}

OperatorCounts fused_counts(const Cell& cell, const Feeds& feeds) {
  EXPECT_EQ(check_against_unrolled(cell, feeds, 1e-9), "");
  return counts_of(cell, feeds);
}

TEST(StepFusion, ElementwiseOperatorsBecomeOne) {
  const Lines step = {"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "p = Tanh(a)",  "q = Sigmoid(r)",
                      "m = Mul(p, q)",          "n = Mul(m, v) broadcast=1",   "h = Sub(n, x)"};
  EXPECT_EQ(fused_counts({step, {kH}}, wide_feeds(9, 1)).forward_steps, 2);
  EXPECT_EQ(fused_counts({step, {kH}}, wide_feeds(3, 1)).forward_steps, 5);  // too narrow
}

// A slice is read where it is, and gradients of slices are written into their tensor.
TEST(StepFusion, SlicesOfGates) {
  const Lines step = {"a = FC(x, W, b) axis=2",
                      "r = FC(h_prev, U, b) axis=2",
                      "s = Sum(a, r)",
                      "i = Slice(s) starts=0/0/0 ends=-1/-1/140",
                      "g = Slice(s) starts=0/0/140 ends=-1/-1/280",
                      "p = Sigmoid(i)",
                      "q = Tanh(g)",
                      "k = Mul(p, h_prev)",
                      "h = Add(k, q)"};
  const OperatorCounts fused = fused_counts({step, {kH}}, wide_feeds(140, 2));
  EXPECT_EQ(fused.forward_steps, 2);
  EXPECT_LE(fused.backward_steps, 3);
}

// The same with an operator that has all parts, whose gradient puts them together.
TEST(StepFusion, SplitGates) {
  const Lines step = {"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2",
                      "s = Sum(a, r)",          "i, g = Split(s) axis=2",
                      "p = Sigmoid(i)",         "q = Tanh(g)",
                      "k = Mul(p, h_prev)",     "h = Add(k, q)"};
  const OperatorCounts fused = fused_counts({step, {kH}}, wide_feeds(140, 2));
  EXPECT_EQ(fused.forward_steps, 2);
  EXPECT_LE(fused.backward_steps, 3);
}

Tensor forward_of(Cell cell, const Feeds& feeds, const std::vector<std::string>& disabled) {
  cell.disabled_passes = disabled;
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  NetDef net = recurrent_net(cell, feeds);
  net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true);
  expand_recurrent(net);
  RunContext context;
  run_net_once(net, workspace, context);
  return workspace.tensor("h_all");
}

// A product is added when its sum is, so it must not read what the loop has written over its operand before.
TEST(StepFusion, ProductsOfWhatIsOverwritten) {
  const Lines step = {"a = FC(x, W, b) axis=2", "t = Mul(a, h_prev)",     "a = Tanh(a)",
                      "s = Add(t, h_prev)",     "r = FC(a, U, b) axis=2", "h = Sum(s, r)"};
  const Cell cell{step, {kH}};
  const Feeds feeds = wide_feeds(9, 1);
  EXPECT_EQ(compare(forward_of(cell, feeds, {}), forward_of(cell, feeds, {"fuse"}), 1e-14), "");
}

// Of a loop whose tensors all have the same rows, and which sums them.
TEST(StepFusion, SumsOfRowsThatTheLoopReadsAgain) {
  const Lines step = {"m = Mul(h_prev, x)", "s = MatchShape(m, one)", "d = Sub(m, s)", "h = Tanh(d)"};
  Feeds feeds = wide_feeds(9, 1);
  feeds.emplace_back("one", normal<double>({1, 50, 1}, 7));
  const Cell cell{step, {kH}};
  EXPECT_EQ(fused_counts(cell, feeds).forward_steps, 1);
  EXPECT_EQ(compare(forward_of(cell, feeds, {}), forward_of(cell, feeds, {"fuse"}), 1e-14), "");
}

// Of rows that are in several pieces: a sum is of what was there before the loop wrote over it.
TEST(StepFusion, SumsOfWhatIsOverwritten) {
  const Lines step = {"a = FC(x, W, b) axis=2", "z = Sigmoid(a)", "s = MatchShape(a, one)", "a = Tanh(a)",
                      "e = Mul(a, z)",          "g = Add(a, s)",  "h = Sub(e, g)"};
  Feeds feeds = wide_feeds(300, 1);
  feeds.emplace_back("one", normal<double>({1, 50, 1}, 7));
  const Cell cell{step, {kH}};
  EXPECT_EQ(compare(forward_of(cell, feeds, {"hoist"}), forward_of(cell, feeds, {"hoist", "fuse"}), 1e-12), "");
}

// The same of the rows of matrices, with a weight for each and without.
TEST(StepFusion, SumsOfMatricesThatAreOverwritten) {
  for (const char* sum : {"r = BatchMatMul(column, m) trans_a=1", "r = MatchShape(m, row)"}) {
    const Cell cell{{"m = BatchMatMul(P, S_prev)", "z = Sigmoid(m)", sum, "m = Tanh(m)", "e = Mul(m, z)",
                     "f = Add(m, r)", "S = Add(e, f)"},
                    {{"S_prev", "S", "h0", "h_all"}}};
    const Feeds feeds = {{"X", normal<double>({4, 2, 9}, 1)},
                         {"h0", normal<double>({1, 2, 9, 8}, 2)},
                         {"P", normal<double>({1, 2, 9, 9}, 3)},
                         {"column", normal<double>({1, 2, 9, 1}, 4)},
                         {"row", normal<double>({1, 2, 1, 8}, 5)}};
    EXPECT_EQ(compare(forward_of(cell, feeds, {}), forward_of(cell, feeds, {"fuse"}), 1e-12), "") << sum;
  }
}

TEST(StepBlocks, RandomOperatorsStay) {
  EXPECT_EQ(counts_of({{"d, mask = Dropout(x)", "h = Sum(d, h_prev)"}, {kH}}).forward_blocks, 0);
}

TEST(StepBlocks, RandomOperatorsDrawAsAnotherIfTheySaySo) {
  Cell cell = {{}, {kH}};
  const Feeds feeds = feeds_of(3, 4);
  const auto sum_with = [&](const std::string& name, const std::string& draws) {
    cell.step_net = net_of_lines({name + ", mask = Dropout(x)", "h = Sum(" + name + ", h_prev)"});
    if (!draws.empty()) cell.step_net.mutable_op(0)->SetExtension(draws_as, draws);
    Workspace workspace;
    for (const auto& [blob, value] : feeds) workspace.tensor(blob) = value.clone();
    RunContext run;
    run_net_once(expanded_net(cell, feeds), workspace, run);
    return workspace.fetch("h_all").clone();
  };
  EXPECT_NE(compare(sum_with("e", ""), sum_with("d", ""), 0), "");
  EXPECT_EQ(compare(sum_with("e", "d"), sum_with("d", ""), 0), "");
}

}  // namespace
}  // namespace stepnet::testing::step_blocks_test
