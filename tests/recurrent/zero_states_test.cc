// States that start at zero without being given.
#include <gtest/gtest.h>

#include "tests/recurrent/elman.h"

namespace stepnet::testing::zero_states_test {
namespace {

const Cell kZero = {kElman, {{"h_prev", "h", "", "h_all", "h_last", {3}}}};

Feeds feeds_of(int64_t steps, int64_t batch) {
  Feeds feeds = elman_feeds(steps, batch, {3});
  feeds.erase(feeds.begin() + 1);  // h0
  return feeds;
}

TEST(ZeroStates, AreTheNetUnrolled) {
  for (const auto& [steps, batch] : {std::pair{4, 2}, {1, 1}, {0, 2}, {3, 0}, {0, 0}}) {
    SCOPED_TRACE(fmt::format("T {}, B {}", steps, batch));
    EXPECT_EQ(check_against_unrolled(kZero, feeds_of(steps, batch)), "");
  }
  EXPECT_EQ(check_differences(kZero, feeds_of(3, 2)), "");
}

TEST(ZeroStates, WithoutTimestepsAreZero) {
  const CellResults results = run_recurrent(kZero, feeds_of(0, 2), {});
  EXPECT_EQ(compare(results.outputs.at("h_last"), Tensor::zeros(DType::float64, {1, 2, 3}), 0), "");
}

// A state that is given goes with one that is not.
TEST(ZeroStates, BesideGivenOnes) {
  const Cell cell = {{"h = Mul(h_prev, x)", "c = Sum(c_prev, h)"},
                     {{"h_prev", "h", "h0", "h_all"}, {"c_prev", "c", "", "", "c_last", {3}}}};
  for (const Shape& initial : {Shape{3}, Shape{2, 3}, Shape{1, 2, 3}}) {
    const Feeds feeds = {{"X", normal<double>({4, 2, 3})}, {"h0", normal<double>(initial, 2)}};
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
    EXPECT_EQ(check_differences(cell, feeds), "");
  }
}

// The second run finds the state tensor as the first left it.
TEST(ZeroStates, StartAtZeroInEveryRun) {
  const Feeds feeds = feeds_of(4, 2);
  const CellData data = {feeds, outside_gradients(kZero, feeds)};
  const std::vector<CellResults> results = run_in_turn(expanded_net(kZero, feeds), {data, data, data});
  for (const CellResults& r : results) EXPECT_EQ(compare_results(r, results[0], 0), "");
  EXPECT_EQ(results[2].allocations, 0);
}

TEST(ZeroStates, HaveTheTypeOfTheFirstFloatingInput) {
  Cell cell = {{"e = Gather(E, x) dense_gradient=1", "h = Sum(e, h_prev)"}, {{"h_prev", "h", "", "h_all", "", {3}}}};
  Feeds feeds = {{"X", integers<int32_t>({4, 2}, 0, 4)}, {"E", normal<double>({5, 3})}};
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  feeds[1].second = normal<float>({5, 3});
  EXPECT_EQ(check_against_unrolled(cell, feeds, 1e-6), "");
}

TEST(ZeroStates, OfAnyRank) {
  const Cell cell = {{"h = Mul(h_prev, x)", "c = Sum(c_prev, h)"},
                     {{"h_prev", "h", "h0", "h_all", "h_last"}, {"c_prev", "c", "", "c_all", "c_last", {2, 3}}}};
  for (const auto& [steps, batch] : {std::pair{4, 2}, {1, 1}, {0, 2}, {3, 0}}) {
    const Feeds feeds = {{"X", normal<double>({steps, batch, 2, 3})}, {"h0", normal<double>({1, batch, 2, 3}, 2)}};
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  }
}

TEST(ZeroStates, AreWrittenOnlyIntoTheFullFormsThatNeedThem) {
  const Feeds feeds = feeds_of(3, 2);
  NetDef net = expanded_net(kZero, feeds);
  EXPECT_EQ(arg_of(net, "initial_recurrent_state_ids").ints(0), -1);
  EXPECT_EQ(arg_of(net, "zero_state_ranks").ints(0), 1);
  EXPECT_EQ(arg_of(net, "zero_state_sizes").ints(0), 3);
  Cell given = kZero;
  given.states = {{"h_prev", "h", "h0", "h_all", "h_last"}};
  const NetDef plain = expanded_net(given, feeds);
  for (const char* name : {"zero_state_ranks", "zero_state_sizes", "more_sequences", "output_internal",
                           "output_external", "output_grads", "reverse", "sequence_lengths_id"})
    EXPECT_EQ(find_arg(plain.op(0), name), nullptr) << name;
}

}  // namespace
}  // namespace stepnet::testing::zero_states_test
