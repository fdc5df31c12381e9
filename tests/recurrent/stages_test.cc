// Stacks of cells in one step net: a block of timesteps runs cell by cell, or the cells of several blocks run at once.
#include <gtest/gtest.h>

#include "core/compute/threads.h"
#include "recurrent/form/passes.h"
#include "stepnet/net.h"
#include "tests/recurrent/programs.h"

namespace stepnet::testing::stages_test {
namespace {

class Stages : public ::testing::Test {
 protected:
  ~Stages() override { set_threads(0); }
};

CellState state(int layer) {
  return {fmt::format("h_prev_{}", layer), fmt::format("h_{}", layer), fmt::format("h0_{}", layer), "",
          fmt::format("h_last_{}", layer)};
}

Lines elman(int layer, const std::string& below) {
  return {fmt::format("a_{0} = FC({1}, W_{0}, b_{0}) axis=2", layer, below),
          fmt::format("r_{0} = FC(h_prev_{0}, U_{0}, b_{0}) axis=2", layer),
          fmt::format("s_{0} = Sum(a_{0}, r_{0})", layer), fmt::format("h_{0} = Tanh(s_{0})", layer)};
}

// Layers, and a product of the last one's that feeds no state.
Cell stack(int layers) {
  Cell cell;
  std::string below = "x";
  for (int i = 0; i < layers; ++i) {
    for (const std::string& line : elman(i, below)) cell.step.push_back(line);
    cell.states.push_back(state(i));
    below = state(i).output;
  }
  cell.step.push_back(fmt::format("y = FC({}, V, b_0) axis=2", below));
  cell.outputs = {{"y", "Y"}};
  return cell;
}

Feeds stack_feeds(int layers, int64_t steps, int64_t batch) {
  constexpr int64_t width = 5;
  Feeds feeds = {{"X", normal<double>({steps, batch, width}, 1)}, {"V", normal<double>({width, width}, 2)}};
  for (int i = 0; i < layers; ++i) {
    feeds.emplace_back(fmt::format("h0_{}", i), normal<double>({batch, width}, 10 + i));
    feeds.emplace_back(fmt::format("W_{}", i), normal<double>({width, width}, 20 + i, 0, 0.4));
    feeds.emplace_back(fmt::format("U_{}", i), normal<double>({width, width}, 30 + i, 0, 0.4));
    feeds.emplace_back(fmt::format("b_{}", i), normal<double>({width}, 40 + i));
  }
  return feeds;
}

struct Counts {
  int forward_stages, forward_blocks, backward_stages;
  bool operator==(const Counts&) const = default;
};

void PrintTo(const Counts& c, std::ostream* out) {
  *out << fmt::format("{{{}, {}, {}}}", c.forward_stages, c.forward_blocks, c.backward_stages);
}

Counts counts_of(const Cell& cell, const Feeds& feeds) {
  std::set<std::string> wanted;
  for (const auto& [name, value] : feeds) wanted.insert(name);
  Workspace workspace;
  const RecurrentScratch& scratch = run_programs(workspace, cell, feeds, "Y", wanted);
  return {scratch.forward->stages(), scratch.forward->block_operators(), scratch.backward->stages()};
}

TEST_F(Stages, OneForEachCellAndOneForWhatFeedsNone) {
  const Feeds feeds = stack_feeds(3, 40, 2);
  Cell cell = stack(3);
  EXPECT_EQ(counts_of(cell, feeds), (Counts{4, 4, 3}));  // each cell's product with its input, and the output's
  cell.disabled_passes = {"split"};
  EXPECT_EQ(counts_of(cell, feeds), (Counts{2, 2, 1}));
  cell.disabled_passes = {"sink"};
  EXPECT_EQ(counts_of(cell, feeds), (Counts{3, 3, 3}));
  cell.disabled_passes = {"hoist"};
  EXPECT_EQ(counts_of(cell, feeds), (Counts{1, 0, 1}));
}

// The first cell reads what the second has made a timestep before.
TEST_F(Stages, CellsThatWaitForEachOtherShareOne) {
  Cell cell = stack(2);
  cell.step[2] = "s_0 = Sum(a_0, r_0, h_prev_1)";
  const Feeds feeds = stack_feeds(2, 40, 1);
  EXPECT_EQ(counts_of(cell, feeds), (Counts{2, 2, 1}));
  set_threads(2);
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

TEST_F(Stages, EqualTheUnrolledNet) {
  for (const int threads : {1, 2, 3}) {
    set_threads(threads);
    for (const int64_t batch : {1, 3, 9})
      EXPECT_EQ(check_against_unrolled(stack(3), stack_feeds(3, 70, batch)), "") << threads << ", batch " << batch;
  }
}

TEST_F(Stages, EqualTheUnrolledNetWithoutOtherPasses) {
  set_threads(2);
  for (const auto& disabled : pass_choices()) {
    Cell cell = stack(2);
    cell.disabled_passes = disabled;
    EXPECT_EQ(check_against_unrolled(cell, stack_feeds(2, 60, 1)), "") << fmt::format("{}", fmt::join(disabled, ", "));
  }
}

TEST_F(Stages, EqualTheUnrolledNetInReverseAndWithLengths) {
  set_threads(2);
  Feeds feeds = stack_feeds(2, 70, 2);
  Cell cell = stack(2);
  cell.reverse = true;
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  cell.lengths = "lengths";
  feeds.emplace_back("lengths", Tensor::of<int32_t>({2}, {70, 30}));
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  cell.reverse = false;
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

// The first input goes past the first cell, and the first cell past the second.
TEST_F(Stages, EqualTheUnrolledNetWithShortcuts) {
  set_threads(2);
  Cell cell = stack(3);
  cell.step[4] = "q = Sum(h_0, x)";
  cell.step.insert(cell.step.begin() + 5, "a_1 = FC(q, W_1, b_1) axis=2");
  const size_t third = 9;
  ASSERT_EQ(cell.step[third], "a_2 = FC(h_1, W_2, b_2) axis=2");
  cell.step[third] = "m = Mul(h_0, h_prev_1)";
  cell.step.insert(cell.step.begin() + third + 1, "a_2 = FC(m, W_2, b_2) axis=2");
  for (const int64_t batch : {1, 4}) EXPECT_EQ(check_against_unrolled(cell, stack_feeds(3, 70, batch)), "") << batch;
}

// What is no state, and read in each timestep of a later stage while an earlier one writes that of the next block.
TEST_F(Stages, EqualTheUnrolledNetWithScratchThatIsReadLater) {
  set_threads(3);
  Cell cell = stack(3);
  std::ranges::replace(cell.step, std::string("s_2 = Sum(a_2, r_2)"), std::string("s_2 = Sum(a_2, r_2, s_0)"));
  for (const int64_t batch : {1, 4}) EXPECT_EQ(check_against_unrolled(cell, stack_feeds(3, 140, batch)), "") << batch;
}

CellResults results_without(const std::string& pass, const Feeds& feeds) {
  Cell cell = stack(3);
  if (!pass.empty()) cell.disabled_passes = {pass};
  return run_recurrent(cell, feeds, outside_gradients(cell, feeds));
}

TEST_F(Stages, GiveTheSameBitsAtOnceAsInTurn) {
  const Feeds feeds = stack_feeds(3, 205, 1);
  set_threads(3);
  EXPECT_EQ(compare_results(results_without("", feeds), results_without("wavefront", feeds), 0), "");
}

// The network alone, of which nobody sees the states' earlier rows.
NetDef forward_only(int layers, const Feeds& feeds, const std::vector<std::string>& disabled = {}) {
  Cell cell = stack(layers);
  cell.disabled_passes = disabled;
  NetDef net = expanded_net(cell, feeds);
  remove_arg(net, "backward_step_net");
  return net;
}

Tensor output_of(const NetDef& net, const Feeds& feeds, const std::string& name) {
  Workspace workspace;
  for (const auto& [input, value] : feeds) workspace.tensor(input) = value;
  RunContext run;
  run_net_once(net, workspace, run);
  return workspace.fetch(name).clone();
}

TEST_F(Stages, ForwardOnlyTheyTakeTurnsWithTheRowsOfStates) {
  for (const int threads : {1, 3}) {
    set_threads(threads);
    for (const int64_t batch : {1, 3, 9}) {
      for (const int64_t steps : {2, 15, 16, 17, 64, 65, 300}) {
        const Feeds feeds = stack_feeds(3, steps, batch);
        const NetDef net = forward_only(3, feeds), plain = forward_only(3, feeds, pass_names());
        for (const std::string name : {"Y", "h_last_0", "h_last_2"})
          EXPECT_EQ(compare(output_of(net, feeds, name), output_of(plain, feeds, name), 1e-12), "")
              << name << ", " << threads << " threads, batch " << batch << ", " << steps << " timesteps";
      }
    }
  }
}

// What follows the cell reads the state both after and before the timestep: the earlier row, too, must still be there
// when the cell has run on.
TEST_F(Stages, ForwardOnlyALaterStageReadsTheRowBefore) {
  Cell cell = {.step = {"s = Sum(x, h_prev)", "h = Tanh(s)", "c = Copy(h)", "a = FC(h_prev, W, b) axis=2",
                        "m = Mul(a, x)", "y = Sum(m, c)"},
               .states = {{"h_prev", "h", "h0", "", ""}},
               .outputs = {{"y", "Y"}}};
  for (const int threads : {1, 3}) {
    set_threads(threads);
    for (const int64_t batch : {1, 6}) {
      for (const int64_t steps : {15, 33, 44, 45, 300}) {
        const Feeds feeds = {{"X", normal<double>({steps, batch, 4}, 1)},
                             {"h0", normal<double>({batch, 4}, 2)},
                             {"W", normal<double>({4, 4}, 3)},
                             {"b", normal<double>({4}, 4)}};
        Tensor made[2];
        for (const bool plain : {false, true}) {
          cell.disabled_passes = plain ? pass_names() : std::vector<std::string>{};
          NetDef net = expanded_net(cell, feeds);
          remove_arg(net, "backward_step_net");
          made[plain] = output_of(net, feeds, "Y");
        }
        EXPECT_EQ(compare(made[0], made[1], 1e-12), "") << threads << " threads, batch " << batch << ", T " << steps;
      }
    }
  }
}

TEST_F(Stages, ForwardOnlyMemoryGrowsByTheOutputAlone) {
  set_threads(2);
  auto bytes = [](int64_t steps) {
    const Feeds feeds = stack_feeds(2, steps, 8);  // 320 bytes a row: sizes are rounded to 64
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
    Net net(forward_only(2, feeds), workspace);
    RunContext run;
    const int64_t before = allocator({}).counters().live;
    allocator({}).reset_peak();
    net.run(run);
    net.run(run);
    return allocator({}).counters().peak - before;
  };
  EXPECT_EQ(bytes(1000) - bytes(100), 900 * 8 * 5 * 8);
}

}  // namespace
}  // namespace stepnet::testing::stages_test
