// Slots of a step net that share bytes: how many they take, to the byte, and that nobody can tell from the results.
#include <gtest/gtest.h>

#include "core/compute/threads.h"
#include "stepnet/gradients.h"
#include "tests/recurrent/cell_files.h"

namespace stepnet::testing::layout_test {
namespace {

class Layout : public ::testing::Test {
 protected:
  ~Layout() override { set_threads(0); }
};

const CellState kH = {"h_prev", "h", "h0", "h_all", ""};

Feeds feeds_of(int64_t steps, int64_t batch, int64_t width) {
  return {{"X", normal<double>({steps, batch, width}, 1)}, {"h0", normal<double>({batch, width}, 2)}};
}

// Values in a row, each made from the one before: links + 1 of them are scratch.
Lines chain(int links, const std::string& from = "s") {
  Lines lines;
  std::string before = from;
  for (int i = 0; i < links; ++i) {
    const std::string name = fmt::format("{}_{}", from, i);
    lines.push_back(fmt::format("{} = {}({})", name, i % 2 == 0 ? "Tanh" : "Sigmoid", before));
    before = name;
  }
  return lines;
}

Cell chain_cell(int links) {
  Cell cell = {{"s = Sum(x, h_prev)"}, {kH}};
  for (const std::string& line : chain(links)) cell.step.push_back(line);
  cell.step.push_back(fmt::format("h = Tanh(s_{})", links - 1));
  cell.disabled_passes = {"fuse"};
  return cell;
}

// Of several widths: s [H] -> w [2H] -> t [2H] -> p, q [H].
Cell wide_cell() {
  Cell cell = {
      {"s = Sum(x, h_prev)", "w = Concat(s, s) axis=2", "t = Tanh(w)", "p, q = Split(t) axis=2", "h = Mul(p, q)"},
      {kH}};
  cell.disabled_passes = {"fuse"};
  return cell;
}

// Of the sequence alone: hoisted but for the sum.
Cell hoisted_cell(int links) {
  Cell cell = {{"s = Sqr(x)"}, {kH}};
  for (const std::string& line : chain(links)) cell.step.push_back(line);
  cell.step.push_back(fmt::format("h = Sum(s_{}, h_prev)", links - 1));
  cell.disabled_passes = {"fuse"};
  return cell;
}

// Elman cells, with chains between them and in front of their states.
Cell stack(int layers) {
  Cell cell;
  std::string below = "x";
  for (int i = 0; i < layers; ++i) {
    cell.states.push_back({fmt::format("h_prev_{}", i), fmt::format("h_{}", i), "h0", "", fmt::format("last_{}", i)});
    for (const std::string& line :
         {fmt::format("b{} = Tanh({})", i, below), fmt::format("c{0} = Sigmoid(b{0})", i),
          fmt::format("a{0} = FC(c{0}, W, b) axis=2", i), fmt::format("r{0} = FC(h_prev_{0}, U, b) axis=2", i),
          fmt::format("s{0} = Sum(a{0}, r{0})", i), fmt::format("t{0} = Tanh(s{0})", i),
          fmt::format("u{0} = Sigmoid(t{0})", i), fmt::format("h_{0} = Mul(u{0}, t{0})", i)})
      cell.step.push_back(line);
    below = cell.states.back().output;
  }
  for (const std::string& line : chain(3, below)) cell.step.push_back(line);
  cell.outputs = {{below + "_2", "Y"}};
  return cell;
}

Feeds stack_feeds(int64_t steps, int64_t batch, int64_t width) {
  Feeds feeds = feeds_of(steps, batch, width);
  feeds.emplace_back("W", normal<double>({width, width}, 3, 0, 0.4));
  feeds.emplace_back("U", normal<double>({width, width}, 4, 0, 0.4));
  feeds.emplace_back("b", normal<double>({width}, 5));
  return feeds;
}

Cell without_layout(Cell cell) {
  cell.disabled_passes.emplace_back("layout");
  return cell;
}

NetDef net_of(const Cell& cell, const Feeds& feeds, bool training) {
  NetDef net = expanded_net(cell, feeds);
  if (!training) {
    remove_arg(net, "backward_step_net");
    return net;
  }
  GradientRequest request;
  for (const auto& [name, value] : feeds)
    if (is_floating(value.dtype())) request.wanted.insert(name);
  for (const auto& [name, value] : outside_gradients(cell, feeds)) {
    request.targets.emplace_back(name, name + "_given");
    net.add_external_input(name + "_given");
  }
  add_gradient_operators(net, request);
  return net;
}

int64_t live() { return allocator({}).counters().live; }

// The most bytes at once in a run after the first, beside what is fed; it allocates nothing.
int64_t bytes_of(const Cell& cell, const Feeds& feeds, bool training) {
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
  if (training)
    for (const auto& [name, value] : outside_gradients(cell, feeds)) workspace.tensor(name + "_given") = value;
  const int64_t before = live();
  Net net(net_of(cell, feeds, training), workspace);
  RunContext run;
  allocator({}).reset_peak();
  net.run(run);
  const int64_t first = allocator({}).counters().peak;
  net.run(run);
  const int64_t allocations = allocator({}).counters().allocations;
  allocator({}).reset_peak();
  net.run(run);
  EXPECT_EQ(allocator({}).counters().allocations, allocations);
  EXPECT_LE(first, allocator({}).counters().peak);
  return allocator({}).counters().peak - before;
}

int64_t rounded(int64_t elements) { return (elements * 8 + 63) / 64 * 64; }

// The state and the number of the timestep. A lane has such a number of its own only if its operators read it.
int64_t bytes_without_scratch(int64_t steps, int64_t batch, int64_t width) {
  return rounded((steps + 1) * batch * width) + 64;
}

TEST_F(Layout, AChainTakesTwoBuffers) {
  for (const int links : {1, 2, 9}) {
    const Cell cell = chain_cell(links);
    for (const auto& [steps, batch, width] : {std::array<int64_t, 3>{1, 3, 5}, {7, 3, 5}, {7, 8, 16}}) {
      const Feeds feeds = feeds_of(steps, batch, width);
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} links, T = {}, B = {}, {} threads", links, steps, batch, threads));
        set_threads(threads);
        const int64_t others = bytes_without_scratch(steps, batch, width);
        EXPECT_EQ(bytes_of(cell, feeds, false), others + 2 * rounded(batch * width));
        EXPECT_EQ(bytes_of(without_layout(cell), feeds, false), others + (links + 1) * rounded(batch * width));
      }
    }
  }
}

TEST_F(Layout, LargeAndSmallValuesTakeTurns) {
  for (const int threads : {1, 2}) {
    set_threads(threads);
    const Feeds feeds = feeds_of(5, 8, 16);
    const int64_t others = bytes_without_scratch(5, 8, 16);
    EXPECT_EQ(bytes_of(wide_cell(), feeds, false), others + 4 * rounded(8 * 16)) << threads;
    EXPECT_EQ(bytes_of(without_layout(wide_cell()), feeds, false), others + 7 * rounded(8 * 16)) << threads;
  }
}

// Each lane's part would be rounded up to 64 bytes.
TEST_F(Layout, LanesOfAFewBytesShareTensors) {
  set_threads(2);
  const Cell cell = chain_cell(2);
  const Feeds feeds = feeds_of(5, 8, 1);
  EXPECT_EQ(bytes_of(cell, feeds, false), bytes_of(without_layout(cell), feeds, false));
}

TEST_F(Layout, HoistedValuesTakeTwoBlocks) {
  for (const int threads : {1, 2}) {
    set_threads(threads);
    const Feeds feeds = feeds_of(100, 8, 16);
    const Cell cell = hoisted_cell(6);
    const int64_t others = bytes_without_scratch(100, 8, 16), block = rounded(128 * 16);
    EXPECT_EQ(bytes_of(cell, feeds, false), others + 2 * block) << threads;
    EXPECT_EQ(bytes_of(without_layout(cell), feeds, false), others + 7 * block) << threads;
  }
}

// Bits and bytes with the pass against those without, forward and in training.
void check(Cell cell, const Feeds& feeds) {
  for (const auto& passes : {std::vector<std::string>{}, {"fuse"}, {"fuse", "fold"}, {"fuse", "lanes"}}) {
    cell.disabled_passes = passes;
    const Cell apart = without_layout(cell);
    for (const bool training : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, without {}", training ? "training" : "forward", fmt::join(passes, ", ")));
      EXPECT_LE(bytes_of(cell, feeds, training), bytes_of(apart, feeds, training));
    }
    const Feeds outside = outside_gradients(apart, feeds);
    EXPECT_EQ(compare_results(run_recurrent(cell, feeds, outside), run_recurrent(apart, feeds, outside), 0), "");
    EXPECT_EQ(compare_results(run_recurrent(cell, feeds, {}), run_recurrent(apart, feeds, {}), 0), "");
  }
}

TEST_F(Layout, ChangesNoBits) {
  for (const int threads : {1, 2, 3}) {
    set_threads(threads);
    for (const auto& [steps, batch, width] : {std::array<int64_t, 3>{1, 3, 5}, {9, 3, 5}, {40, 9, 11}}) {
      SCOPED_TRACE(fmt::format("{} threads, T = {}, B = {}", threads, steps, batch));
      check(chain_cell(5), feeds_of(steps, batch, width));
      check(wide_cell(), feeds_of(steps, batch, width));
      check(hoisted_cell(5), feeds_of(steps, batch, width));
    }
  }
}

// Batches of 1 and 3 have a wavefront with more than one thread, and 9 has lanes.
TEST_F(Layout, ChangesNoBitsOfStacks) {
  for (const int threads : {1, 2, 3}) {
    set_threads(threads);
    for (const int64_t batch : {1, 3, 9}) {
      SCOPED_TRACE(fmt::format("{} threads, B = {}", threads, batch));
      check(stack(3), stack_feeds(130, batch, 5));
    }
  }
}

TEST_F(Layout, ChangesNoBitsOfTheExamples) {
  for (const CellFile& file : cell_files()) {
    const NetDef net = cell_net(file.name, file.random);
    const Sizes sizes = {{'T', 12}, {'B', 9}, {'I', 6}, {'H', 8}, {'P', 4}, {'D', 2}, {'S', 5}, {'A', 3}};
    const auto [cell, feeds] = cell_of(net, run_forward(net, cell_feeds(file.name, DType::float64, sizes)));
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", file.name, threads));
      set_threads(threads);
      check(cell, feeds);
    }
  }
}

// A program that has run with other threads gives their arenas back.
TEST_F(Layout, FollowsTheNumberOfThreads) {
  const Feeds feeds = feeds_of(9, 8, 16);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
  Net net(net_of(chain_cell(5), feeds, false), workspace);
  Tensor expected;
  int64_t bytes = 0;
  for (const int threads : {1, 2, 1, 3, 1}) {
    set_threads(threads);
    RunContext run;
    net.run(run);
    const int64_t now = live();
    if (bytes == 0) {
      bytes = now;
      expected = workspace.fetch("h_all").clone();
      bytes += static_cast<int64_t>(expected.bytes());
      continue;
    }
    EXPECT_EQ(compare(workspace.fetch("h_all"), expected, 0), "") << threads;
    EXPECT_EQ(now, bytes) << threads;
  }
}

}  // namespace
}  // namespace stepnet::testing::layout_test
