// Steps of several ranks whose passes are pauses: they start sums of buckets at given moments, as the operators of a
// backward pass do, and need no processor meanwhile. So a machine with fewer processors than ranks shows what moves
// beside the passes, and what the scaling plan says of it. mpirun starts it, with the library of delays_shim.cc:
//
//   paced_steps LATENCY_US BANDWIDTH_GBPS PASSES_MS UPDATE_MS BUCKETS BUCKET_BYTES STEPS
//
// Buckets are ready one after the other, evenly over the last two thirds of the passes. The first rank prints, in
// milliseconds and shares: ranks, moving, the median step, the planned step, hidden, planned to be hidden.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "operators/collective/world.h"
#include "recurrent/distributed/scaling_plan.h"
#include "stepnet/error.h"

namespace {

using namespace stepnet;  // NOLINT(google-build-using-namespace): this is no header
using Clock = std::chrono::steady_clock;

Clock::duration ticks(double seconds) { return std::chrono::duration_cast<Clock::duration>(Seconds(seconds)); }

double run_step(World& world, const ScalingStep& step, std::vector<std::vector<float>>& values) {
  const Clock::time_point start = Clock::now();
  std::vector<PendingPtr> pending;
  for (size_t i = 0; i < step.buckets.size(); ++i) {
    std::this_thread::sleep_until(start + ticks(step.buckets[i].ready));
    const auto count = static_cast<int64_t>(values[i].size());
    pending.push_back(world.start_allreduce(values[i].data(), values[i].data(), count, DType::float32, ReduceOp::sum));
  }
  std::this_thread::sleep_until(start + ticks(step.passes));
  for (const PendingPtr& p : pending) p->wait();
  std::this_thread::sleep_for(ticks(step.update));
  return Seconds(Clock::now() - start).count();
}

void run(const std::vector<double>& numbers) {
  const ScalingNetwork network{.bandwidth = numbers[1] * 1e9, .latency = numbers[0] * 1e-6};
  ScalingStep step{.passes = numbers[2] * 1e-3, .update = numbers[3] * 1e-3, .buckets = {}};
  const auto buckets = static_cast<int>(numbers[4]), steps = static_cast<int>(numbers[6]);
  for (int i = 0; i < buckets; ++i)
    step.buckets.push_back({step.passes * (1 + 2.0 * (i + 1) / buckets) / 3, static_cast<int64_t>(numbers[5])});
  step.buckets.back().ready = step.passes;  // without a rounding
  std::vector<std::vector<float>> values(step.buckets.size(), std::vector<float>(static_cast<size_t>(numbers[5]) / 4));
  const WorldPtr world = create_world(default_world_timeout());
  std::vector<double> times;
  for (int i = 0; i <= steps; ++i) {
    world->start_barrier()->wait();
    const double seconds = run_step(*world, step, values);
    if (i > 0) times.push_back(seconds);
  }
  if (world->rank() != 0) return;
  std::ranges::sort(times);
  const double median = times[times.size() / 2], alone = step.passes + step.update;
  const ScalingRow plan = plan_scaling(step, network, world->size());
  const double hidden = plan.reduction > 0 ? std::clamp(1 - (median - alone) / plan.reduction, 0.0, 1.0) : 1;
  fmt::print("{} {} {} {} {} {}\n", world->size(), plan.reduction * 1e3, median * 1e3, plan.step * 1e3, hidden,
             plan.hidden);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<double> numbers;
    for (int i = 1; i < argc; ++i) numbers.push_back(std::strtod(argv[i], nullptr));
    require(numbers.size() == 7 && numbers[4] >= 1 && numbers[5] >= 4 && numbers[6] >= 1,
            "usage: paced_steps LATENCY_US BANDWIDTH_GBPS PASSES_MS UPDATE_MS BUCKETS BUCKET_BYTES STEPS");
    run(numbers);
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
