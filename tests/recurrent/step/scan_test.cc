// The pass `scan`: elements that go through a block's timesteps by themselves, with the bits of timesteps one by one.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "core/compute/threads.h"
#include "tests/core/heap_counter.h"
#include "tests/recurrent/programs.h"

namespace stepnet::testing::scan_test {
namespace {

class ScanPass : public ::testing::Test {
 protected:
  ~ScanPass() override { set_threads(0); }
};

const CellState kH = {"h_prev", "h", "h0", "h_all", ""};

Cell linear_cell() { return {{"a = Sigmoid(x)", "m = Mul(a, h_prev)", "h = Sum(m, x)"}, {kH}}; }

// Two states that read each other, and parameters that are the same for all samples.
Cell oscillator() {
  return {{"f = Mul(v_prev, w)", "d = Sum(h_prev, f)", "h = Tanh(d)", "g = Mul(h, x)", "e = Sum(v_prev, g)",
           "c = Add(e, b)", "v = Sigmoid(c)"},
          {kH, {"v_prev", "v", "h0", "v_all", "v_last"}}};
}

Feeds feeds_of(DType dtype, int64_t steps, int64_t batch, int64_t width) {
  const auto values = [=](const Shape& shape, uint64_t seed) -> Tensor {
    return dtype == DType::float32 ? normal<float>(shape, seed) : normal<double>(shape, seed);
  };
  return {{"X", values({steps, batch, width}, 1)},
          {"h0", values({batch, width}, 2)},
          {"w", values({width}, 3)},
          {"b", values({width}, 4)}};
}

// How many forward and backward timesteps are scans.
std::array<int, 2> scans_of(const Cell& cell, const Feeds& feeds) {
  Workspace workspace;
  const RecurrentScratch& scratch = run_programs(workspace, cell, feeds, "h_all", {"X", "h0"});
  const auto count = [](const StepProgram& program) {
    return static_cast<int>(std::ranges::count_if(program.ir().ops, [](const auto& op) { return op->scans; }));
  };
  return {count(*scratch.forward), count(*scratch.backward)};
}

void expect_same_bits(Cell cell, const Feeds& feeds) {
  const Feeds outside = outside_gradients(cell, feeds);
  const CellResults scanned = run_recurrent(cell, feeds, outside), forward = run_recurrent(cell, feeds, {});
  cell.disabled_passes = {"scan"};
  EXPECT_EQ(compare_results(scanned, run_recurrent(cell, feeds, outside), 0), "");
  EXPECT_EQ(compare_results(forward, run_recurrent(cell, feeds, {}), 0), "");
}

TEST_F(ScanPass, TakesLoopsThatAreOneChain) {
  using Counts = std::array<int, 2>;
  const Feeds feeds = feeds_of(DType::float64, 5, 2, 16);
  EXPECT_EQ(scans_of(linear_cell(), feeds), (Counts{1, 1}));
  EXPECT_EQ(scans_of(oscillator(), feeds), (Counts{1, 1}));
}

TEST_F(ScanPass, LeavesWhatReadsOtherElements) {
  const Feeds feeds = feeds_of(DType::float64, 5, 2, 16);
  Feeds with_matrix = feeds;
  with_matrix.emplace_back("U", normal<double>({16, 16}, 5));
  const Cell halves_change_places = {
      {"p, q = Split(h_prev) axis=2", "s = Concat(q, p) axis=2", "m = Mul(s, x)", "h = Tanh(m)"}, {kH}};
  const Cell product = {{"r = FC(h_prev, U, b) axis=2", "m = Mul(r, x)", "h = Tanh(m)"}, {kH}};
  const Cell row_sum = {{"r = ReduceSum(h_prev)", "m = Mul(x, r)", "h = Tanh(m)"}, {kH}};
  EXPECT_EQ(scans_of(halves_change_places, feeds)[0], 0);
  EXPECT_EQ(scans_of(product, with_matrix)[0], 0);
  EXPECT_EQ(scans_of(row_sum, feeds)[0], 0);
}

TEST_F(ScanPass, ChangesNoBits) {
  for (const int threads : {1, 2, 3}) {
    set_threads(threads);
    for (const DType dtype : {DType::float32, DType::float64})
      for (const auto& [steps, batch, width] :
           {std::array<int64_t, 3>{1, 1, 8}, {300, 1, 8}, {130, 1, 700}, {7, 3, 200}, {40, 9, 130}, {20, 2, 256}}) {
        SCOPED_TRACE(
            fmt::format("{} threads, {}, T = {}, B = {}, H = {}", threads, dtype_name(dtype), steps, batch, width));
        for (Cell cell : {linear_cell(), oscillator()}) {
          const Feeds feeds = feeds_of(dtype, steps, batch, width);
          expect_same_bits(cell, feeds);
          cell.reverse = true;
          expect_same_bits(cell, feeds);
        }
      }
  }
}

TEST_F(ScanPass, EqualsTheUnrolledNet) {
  for (const Cell& cell : {linear_cell(), oscillator()})
    EXPECT_EQ(check_against_unrolled(cell, feeds_of(DType::float64, 9, 2, 11)), "");
}

// A step of operators that are chosen one by one, each of what is there already; the last are states, and bounded.
Cell random_cell(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto number = [&](size_t least, size_t most) { return least + random() % (most - least + 1); };
  Cell cell = {{}, {}};
  std::vector<std::string> there = {"x", "w", "b"};
  const size_t states = number(1, 3);
  for (size_t s = 0; s < states; ++s) there.push_back(fmt::format("p{}", s));
  const auto any = [&] { return there[number(0, there.size() - 1)]; };
  const size_t lines = number(states + 1, 9);
  for (size_t i = 0; i < lines; ++i) {
    const bool is_state = i + states >= lines;
    const std::string name = is_state ? fmt::format("s{}", i + states - lines) : fmt::format("v{}", i);
    // The first operand has all rows, as the parameters have not.
    const std::string first = there[number(3, there.size() - 1)];
    switch (is_state ? number(0, 2) : number(0, 5)) {
      case 0:
        cell.step.push_back(fmt::format("{} = Tanh({})", name, first));
        break;
      case 1:
        cell.step.push_back(fmt::format("{} = Sigmoid({})", name, first));
        break;
      case 2:
        cell.step.push_back(fmt::format("{} = Sin({})", name, first));
        break;
      case 3:
        cell.step.push_back(fmt::format("{} = Sub({}, {})", name, first, any()));
        break;
      default:
        cell.step.push_back(fmt::format("{} = {}({}, {})", name, i % 2 == 0 ? "Mul" : "Add", first, any()));
    }
    there.push_back(name);
  }
  for (size_t s = 0; s < states; ++s)
    cell.states.push_back({fmt::format("p{}", s), fmt::format("s{}", s), "h0",
                           s == 0 ? "h_all" : fmt::format("all{}", s),
                           number(0, 1) == 0 ? "" : fmt::format("last{}", s)});
  cell.reverse = number(0, 1) == 0;
  return cell;
}

TEST_F(ScanPass, ChangesNoBitsOfRandomNets) {
  int scans = 0;
  const int count = counts_heap() ? 60 : 20;  // a sanitizer takes some ten times as long
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(count); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Cell cell = random_cell(seed);
    const auto draw = static_cast<int64_t>(seed);
    set_threads(static_cast<int>(1 + seed % 2));
    const Feeds feeds = feeds_of(DType::float64, 1 + draw * 37 % 140, 1 + draw * 5 % 9, 1 + draw * 29 % 90);
    expect_same_bits(cell, feeds);
    if (seed % 10 == 0) {
      EXPECT_EQ(check_against_unrolled(cell, feeds_of(DType::float64, 7, 2, 9), 1e-8), "");
    }
    scans += scans_of(cell, feeds)[0];
  }
  EXPECT_GT(scans, count / 3);
}

}  // namespace
}  // namespace stepnet::testing::scan_test
