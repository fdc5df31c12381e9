// Scaling plans against a simulation in which every rank sends every message of its own.
#include "recurrent/distributed/scaling_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/operators/op_test.h"

namespace stepnet::testing::scaling_plan_test {
namespace {

using Clocks = std::vector<double>;  // of each rank: the time when it is ready to go on

// All ranks send to another at the same time and receive; a rank goes on when its own has gone and the other has come.
template <class Source>
void exchange(Clocks& clocks, double seconds, Source source) {
  Clocks next(clocks.size());
  for (size_t r = 0; r < clocks.size(); ++r) next[r] = std::max(clocks[r], clocks[source(r)]) + seconds;
  clocks = next;
}

// Recursive doubling by messages that grow by a factor from round to round. Ranks beyond a power of 2 hand what they
// have to another first, and get the result at the end.
void double_up(Clocks& clocks, double bytes, double growth, const ScalingNetwork& n) {
  size_t most = 1;
  while (2 * most <= clocks.size()) most *= 2;
  const auto give = [&](size_t from, size_t to) {
    clocks[to] = std::max(clocks[to], clocks[from]) + n.latency + bytes / n.bandwidth;
  };
  for (size_t r = most; r < clocks.size(); ++r) give(r, r - most);
  Clocks members(clocks.begin(), clocks.begin() + static_cast<std::ptrdiff_t>(most));
  for (size_t far = 1; far < most; far *= 2) {
    exchange(members, n.latency + bytes / n.bandwidth, [&](size_t r) { return r ^ far; });
    bytes *= growth;
  }
  std::ranges::copy(members, clocks.begin());
  for (size_t r = most; r < clocks.size(); ++r) give(r - most, r);
}

void go_round(Clocks& clocks, double bytes, const ScalingNetwork& n) {
  const size_t ranks = clocks.size();
  for (size_t round = 0; round < 2 * (ranks - 1); ++round)
    exchange(clocks, n.latency + bytes / static_cast<double>(ranks) / n.bandwidth,
             [&](size_t r) { return (r + ranks - 1) % ranks; });
}

// The end of the step. The network and the processor of each rank have clocks of their own.
double simulated_step(const ScalingStep& step, const ScalingNetwork& n, size_t ranks) {
  Clocks network(ranks, 0.0);
  for (const ScalingBucket& bucket : step.buckets) {
    Clocks agreed(ranks, bucket.ready);
    double_up(agreed, 56, 2, n);
    for (size_t r = 0; r < ranks; ++r) network[r] = std::max(network[r], agreed[r]);
    Clocks ring = network, doubling = network;
    go_round(ring, static_cast<double>(bucket.bytes), n);
    double_up(doubling, static_cast<double>(bucket.bytes), 1, n);
    network = *std::ranges::max_element(ring) < *std::ranges::max_element(doubling) ? ring : doubling;
  }
  double end = 0;
  for (const double rank : network) end = std::max(end, std::max(rank, step.passes) + step.update);
  return end;
}

ScalingStep random_step(std::mt19937& random) {
  const auto draw = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
  ScalingStep step{.passes = draw(0.2), .update = draw(0.02), .buckets = {}};
  for (int64_t i = 0, count = static_cast<int64_t>(draw(9)); i < count; ++i)
    step.buckets.push_back({draw(step.passes), 1 + static_cast<int64_t>(draw(i % 3 == 0 ? 2e3 : 5e6))});
  std::ranges::sort(step.buckets, {}, &ScalingBucket::ready);
  return step;
}

TEST(ScalingPlan, EqualsASimulationOfMessages) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const ScalingStep step = random_step(random);
    const ScalingNetwork network{.bandwidth = std::exp2(20 + static_cast<double>(random() % 15)),
                                 .latency = 1e-6 * static_cast<double>(random() % 100)};
    for (const int64_t ranks : {1, 2, 4, 8, 64, 256}) {
      const double expected = simulated_step(step, network, static_cast<size_t>(ranks));
      EXPECT_NEAR(plan_scaling(step, network, ranks).step, expected, 1e-12 * std::max(1.0, expected)) << ranks;
    }
  }
}

// Of other numbers the plan counts a round where ranks that are left over join in; the simulation's headers go a way of
// their own then.
TEST(ScalingPlan, IsNearASimulationOfAnyNumberOfRanks) {
  std::mt19937 random(8);
  for (int round = 0; round < 100; ++round) {
    const ScalingStep step = random_step(random);
    const ScalingNetwork network{.bandwidth = 1e9, .latency = 1e-5};
    for (const int64_t ranks : {3, 5, 6, 7, 100}) {
      const double agreement = 2 * (network.latency + 56.0 * static_cast<double>(ranks) / network.bandwidth);
      EXPECT_NEAR(plan_scaling(step, network, ranks).step, simulated_step(step, network, static_cast<size_t>(ranks)),
                  agreement)
          << ranks;
    }
  }
}

TEST(ScalingPlan, OneRankMovesNothing) {
  const ScalingStep step{.passes = 0.1, .update = 0.01, .buckets = {{0.05, 1 << 20}}};
  const ScalingRow row = plan_scaling(step, {.bandwidth = 1e6, .latency = 1}, 1);
  EXPECT_DOUBLE_EQ(row.step, 0.11);
  EXPECT_EQ(row.reduction, 0);
  EXPECT_EQ(row.hidden, 1);
  EXPECT_EQ(row.efficiency, 1);
}

// By hand: 1 MB at 1 MB/s on two ranks takes a second either way, and half of it is behind the passes.
TEST(ScalingPlan, SaysWhatIsHidden) {
  const ScalingStep step{.passes = 1, .update = 0.5, .buckets = {{0.5, 1000000}}};
  const ScalingRow row = plan_scaling(step, {.bandwidth = 1e6, .latency = 0}, 2);
  EXPECT_NEAR(row.reduction, 1, 1e-12);
  EXPECT_NEAR(row.exposed, 0.5, 1e-3);  // and the headers
  EXPECT_NEAR(row.hidden, 0.5, 1e-3);
  EXPECT_NEAR(row.efficiency, 1.5 / 2, 1e-3);
}

// Large buckets go round, small ones by doubling; with thousands of ranks the ring's latencies add up.
TEST(ScalingPlan, TakesTheFasterAlgorithm) {
  const ScalingNetwork network{.bandwidth = 1e10, .latency = 1e-5};
  const ScalingStep step{.passes = 1, .update = 0, .buckets = {{0.1, 100}, {0.5, 100 << 20}}};
  const ScalingRow few = plan_scaling(step, network, 8), many = plan_scaling(step, network, 1 << 16);
  EXPECT_EQ(few.by_ring, 1);
  EXPECT_EQ(few.by_doubling, 1);
  EXPECT_EQ(many.by_doubling, 2);
  EXPECT_LT(many.efficiency, few.efficiency + 1e-12);
}

TEST(ScalingPlan, NumbersOfRanksDouble) {
  EXPECT_EQ(scaling_ranks(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(scaling_ranks(8), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(scaling_ranks(12), (std::vector<int64_t>{1, 2, 4, 8, 12}));
}

TEST(ScalingPlan, FiguresThatMakeNoSenseAreRefused) {
  const ScalingStep step{.passes = 1, .update = 0, .buckets = {{0.5, 8}}};
  const ScalingNetwork network{.bandwidth = 1e9, .latency = 0};
  const auto refusal = [&](const ScalingStep& s, const ScalingNetwork& n, int64_t ranks) {
    return error_of([&] { plan_scaling(s, n, ranks); });
  };
  EXPECT_NE(refusal(step, network, 0).find("planned on 0 ranks"), std::string::npos);
  EXPECT_NE(refusal(step, {.bandwidth = 0, .latency = 0}, 2).find("bandwidth is 0"), std::string::npos);
  EXPECT_NE(refusal(step, {.bandwidth = 1, .latency = -1}, 2).find("latency is -1"), std::string::npos);
  EXPECT_NE(refusal({.passes = -1, .update = 0, .buckets = {}}, network, 2).find("-1 s"), std::string::npos);
  EXPECT_NE(refusal({.passes = 1, .update = 0, .buckets = {{2, 8}}}, network, 2).find("ready at 2 s"),
            std::string::npos);
  EXPECT_NE(refusal({.passes = 1, .update = 0, .buckets = {{0.5, 8}, {0.4, 8}}}, network, 2).find("bucket 1"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::scaling_plan_test
