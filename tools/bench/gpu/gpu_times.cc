// Samples, and their medians.
#include "tools/bench/gpu/gpu_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "gpu/runtime/stream.h"

namespace stepnet::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The third run with the same addresses captures the loop as a graph.
constexpr int kWarmUp = 5, kLeastSamples = 3, kMostRuns = 100;
constexpr double kSampleMs = 10;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Sample {
  double device, wall;  // milliseconds of one run
};

Sample sample(Contender& contender, int runs) {
  gpu::Event before(true), after(true);
  const Clock::time_point start = Clock::now();
  before.record(gpu::current_stream(0));
  for (int run = 0; run < runs; ++run) contender.run();
  after.record(gpu::current_stream(0));
  after.wait();
  return {after.milliseconds_since(before) / runs, milliseconds_since(start) / runs};
}

}  // namespace

GpuTimes time_on_gpu(Contender& contender, int rounds, double seconds) {
  Sample last{};
  for (int run = 0; run < kWarmUp; ++run) last = sample(contender, 1);
  const int runs = std::clamp(static_cast<int>(std::ceil(kSampleMs / std::max(last.wall, 1e-3))), 1, kMostRuns);
  std::vector<double> device, wall;
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    if (round >= kLeastSamples && milliseconds_since(start) > 1000 * seconds) break;
    last = sample(contender, runs);
    device.push_back(last.device);
    wall.push_back(last.wall);
  }
  return {median_of(device), *std::min_element(device.begin(), device.end()), median_of(wall)};
}

}  // namespace stepnet::bench
