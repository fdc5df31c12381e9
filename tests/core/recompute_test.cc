// Plans of recomputation: the peak that is promised is the one that the allocator counts, and nothing else changes.
#include "core/passes/recompute.h"

#include <gtest/gtest.h>

#include "tests/core/errors.h"
#include "tests/core/recompute_testing.h"

namespace stepnet::testing {
namespace {

RecomputePlanner planner_of(const TrainingCase& c) { return {c.net, c.first_gradient_op, c.question}; }

std::string place(const TrainingCase& c, uint64_t seed, int64_t budget) {
  return fmt::format("{}, seed {}, budget {}", c.name, seed, budget);
}

// For bounds from the least to everything kept.
void check_sweep(const TrainingCase& c, uint64_t seed, int points) {
  const RecomputePlanner planner = planner_of(c);
  const TrainingRun whole = run_training(c, c.net);
  EXPECT_EQ(count_memory(c.net, c.question).peak, whole.peak) << place(c, seed, 0);
  EXPECT_EQ(planner.bytes_of_all_kept(), whole.peak) << place(c, seed, 0);
  EXPECT_LE(planner.least_bytes(), whole.peak) << place(c, seed, 0);
  double before = -1;
  for (int i = 0; i < points; ++i) {
    const int64_t budget = planner.least_bytes() + (whole.peak - planner.least_bytes()) * i / (points - 1);
    const RecomputePlan plan = planner.plan(budget);
    const TrainingRun run = run_training(c, plan.net);
    EXPECT_LE(run.peak, budget) << place(c, seed, budget);
    EXPECT_EQ(run.peak, plan.peak) << place(c, seed, budget);
    EXPECT_EQ(first_difference(c, whole, run), "") << place(c, seed, budget);
    if (first_difference(c, whole, run) != "") { for (auto& l : lines_of(plan.net)) std::cout << l << "\n"; return; }
    if (before >= 0) {
      EXPECT_LE(plan.extra_flops, before) << place(c, seed, budget);
    }
    before = plan.extra_flops;
  }
  EXPECT_EQ(before, 0) << place(c, seed, whole.peak);
}

TEST(Recompute, SweepsOfTheExampleNetsKeepBitsAndBudgets) {
  for (const uint64_t seed : {11,12,13,14,15,16,17,18,19,20,21,22,23,24,25})
    for (const TrainingCase& c : example_cases(seed)) check_sweep(c, seed, 9);
}

TEST(Recompute, SweepsOfRandomNetsKeepBitsAndBudgets) {
  for (uint64_t seed = 0; seed < 300; ++seed) check_sweep(random_case(seed, 4 + static_cast<int>(seed % 30)), seed, 5);
}

}  // namespace
}  // namespace stepnet::testing
