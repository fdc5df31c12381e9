// Which operators of a step net run once per block.
#include <gtest/gtest.h>

#include "core/passes/gradients.h"
#include "recurrent/builder.h"
#include "recurrent/scratch.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing {
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

struct Counts {
  int forward_blocks, forward_steps, backward_blocks, backward_steps;
  bool operator==(const Counts&) const = default;
};

void PrintTo(const Counts& c, std::ostream* out) {
  *out << fmt::format("{{{}, {}, {}, {}}}", c.forward_blocks, c.forward_steps, c.backward_blocks, c.backward_steps);
}

Counts counts_of(const Cell& cell, int64_t steps = 9, int64_t batch = 50) {
  const Feeds feeds = feeds_of(steps, batch);
  NetDef net = expanded_net(cell, feeds);
  net.add_external_input("g");
  add_gradient_operators(net, {.targets = {{"h_all", "g"}}, .wanted = {"X", "h0", "W", "U", "b"}, .stop = {}});
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  workspace.tensor("g") = normal<double>({steps, batch, 3}, 7);
  RunContext run;
  run_net_once(net, workspace, run);
  const auto& scratch = workspace.at("rnn/step_workspaces").get<RecurrentScratch>();
  return {scratch.forward->block_operators(), scratch.forward->step_operators(), scratch.backward->block_operators(),
          scratch.backward->step_operators()};
}

// The product with the sequence is hoisted; all of its gradient, and the other's gradients of parameters, are deferred.
TEST(StepBlocks, ElmanCell) {
  const Lines step = {"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"};
  EXPECT_EQ(counts_of({step, {kH}}), (Counts{1, 3, 3, 2}));
  EXPECT_EQ(counts_of({step, {kH}, {}, {}, {"hoist"}}), (Counts{0, 4, 3, 2}));
  EXPECT_EQ(counts_of({step, {kH}, {}, {}, {"hoist", "defer"}}), (Counts{0, 4, 0, 4}));
}

TEST(StepBlocks, InReverseAsForward) {
  Cell cell = {{"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"}, {kH}};
  cell.reverse = true;
  EXPECT_EQ(counts_of(cell), (Counts{1, 3, 3, 2}));
}

// The mask of the sequence is no obstacle, forward or backward.
TEST(StepBlocks, WithLengths) {
  Cell cell = {{"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"}, {kH}};
  cell.lengths = "lengths";
  const Counts counts = counts_of(cell);
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

TEST(StepBlocks, OneTimestepOrALargeBatchHasNoBlocks) {
  const Cell cell = {{"a = FC(x, W, b) axis=2", "h = Sum(a, h_prev)"}, {kH}};
  EXPECT_EQ(counts_of(cell, 1, 50).forward_blocks, 0);
  EXPECT_EQ(counts_of(cell, 9, 128).forward_blocks, 0);
  EXPECT_EQ(counts_of(cell, 9, 127).forward_blocks, 1);
}

TEST(StepBlocks, RandomOperatorsStay) {
  EXPECT_EQ(counts_of({{"d, mask = Dropout(x)", "h = Sum(d, h_prev)"}, {kH}}).forward_blocks, 0);
}

}  // namespace
}  // namespace stepnet::testing
