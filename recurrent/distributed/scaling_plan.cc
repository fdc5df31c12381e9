#include "recurrent/distributed/scaling_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr int64_t kHeaderBytes = 56;  // what a rank says about an operation before its data moves

int64_t floor_of_log2(int64_t ranks) { return std::bit_width(static_cast<uint64_t>(ranks)) - 1; }
bool is_power_of_2(int64_t ranks) { return std::has_single_bit(static_cast<uint64_t>(ranks)); }

// An Allgather by recursive doubling: ceil(lg p) a + n b (p - 1) for n bytes of each.
double agreement_seconds(int64_t ranks, const ScalingNetwork& network) {
  const int64_t rounds = floor_of_log2(ranks) + (is_power_of_2(ranks) ? 0 : 1);
  return static_cast<double>(rounds) * network.latency +
         static_cast<double>(kHeaderBytes * (ranks - 1)) / network.bandwidth;
}

void check(const ScalingStep& step, const ScalingNetwork& network, int64_t ranks) {
  require(ranks >= 1, "a step is planned on {} ranks; there must be at least one", ranks);
  require(std::isfinite(network.bandwidth) && network.bandwidth > 0,
          "the bandwidth is {} bytes per second, but must be more than 0", network.bandwidth);
  require(std::isfinite(network.latency) && network.latency >= 0, "the latency is {} s, but must be at least 0",
          network.latency);
  require(std::isfinite(step.passes) && step.passes >= 0 && std::isfinite(step.update) && step.update >= 0,
          "a step of {} s and {} s cannot be; times must be at least 0", step.passes, step.update);
  for (size_t i = 0; i < step.buckets.size(); ++i) {
    const ScalingBucket& bucket = step.buckets[i];
    require(bucket.bytes >= 0, "bucket {} has {} bytes", i, bucket.bytes);
    require(bucket.ready >= (i == 0 ? 0 : step.buckets[i - 1].ready) && bucket.ready <= step.passes,
            "bucket {} is ready at {} s, but must be behind the one before it, and within the passes' {} s", i,
            bucket.ready, step.passes);
  }
}

}  // namespace

double allreduce_seconds(AllreduceAlgorithm algorithm, int64_t bytes, int64_t ranks, const ScalingNetwork& network) {
  if (ranks == 1 || bytes == 0) return 0;
  const double all = static_cast<double>(bytes) / network.bandwidth;
  const auto others = static_cast<double>(ranks - 1);
  if (algorithm == AllreduceAlgorithm::ring)
    return 2 * others * network.latency + 2 * all * others / static_cast<double>(ranks);
  const int64_t rounds = floor_of_log2(ranks) + (is_power_of_2(ranks) ? 0 : 2);
  return static_cast<double>(rounds) * (network.latency + all);
}

ScalingRow plan_scaling(const ScalingStep& step, const ScalingNetwork& network, int64_t ranks) {
  check(step, network, ranks);
  ScalingRow row{.ranks = ranks};
  double free = 0;  // when the network has done with the buckets so far
  if (ranks > 1) {
    const double agreement = agreement_seconds(ranks, network);
    for (const ScalingBucket& bucket : step.buckets) {
      const double ring = allreduce_seconds(AllreduceAlgorithm::ring, bucket.bytes, ranks, network);
      const double doubling = allreduce_seconds(AllreduceAlgorithm::doubling, bucket.bytes, ranks, network);
      ++(ring < doubling ? row.by_ring : row.by_doubling);
      row.reduction += std::min(ring, doubling);
      free = std::max(free, bucket.ready + agreement) + std::min(ring, doubling);
    }
  }
  row.exposed = std::max(0.0, free - step.passes);
  row.step = step.passes + row.exposed + step.update;
  if (row.reduction > 0) row.hidden = std::clamp(1 - row.exposed / row.reduction, 0.0, 1.0);
  if (row.step > 0) row.efficiency = (step.passes + step.update) / row.step;
  return row;
}

std::vector<int64_t> scaling_ranks(int64_t most) {
  std::vector<int64_t> all;
  for (int64_t ranks = 1; ranks < most; ranks *= 2) all.push_back(ranks);
  all.push_back(most);
  return all;
}

}  // namespace stepnet
