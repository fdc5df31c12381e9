// Measures the machine and adds up a cell's products.
#include "tools/bench/bound.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include "core/compute/threads.h"
#include "stepnet/matmul.h"

namespace stepnet::bench {
namespace {

constexpr double kSeconds = 0.3;  // for each measurement

// The shortest of many runs, in seconds.
template <class Fn>
double shortest(Fn fn) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(kSeconds);
  double best = 1e9;
  for (auto start = Clock::now(); start < end; start = Clock::now()) {
    fn();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

using Vector = float __attribute__((vector_size(32)));

// Eight sums at a time, so that reading is what takes the time and not waiting for one addition after the other.
float sum(const float* values, int64_t count) {
  constexpr int kSums = 8, kWidth = 8;
  Vector sums[kSums] = {};
  for (int64_t i = 0; i + kSums * kWidth <= count; i += kSums * kWidth) {
#pragma GCC unroll 8
    for (int k = 0; k < kSums; ++k) {
      Vector v;
      std::memcpy(&v, values + i + static_cast<int64_t>(k) * kWidth, sizeof(v));
      sums[k] += v;
    }
  }
  Vector all = {};
  for (const Vector& s : sums) all += s;
  return all[0];
}

}  // namespace

double measured_flops() {
  constexpr int64_t n = 768;
  const std::vector<float> a(n * n, 0.5F), b(n * n, 0.5F);
  std::vector<float> c(n * n);
  return 2.0 * n * n * n / shortest([&] { matmul(false, false, n, n, n, a.data(), b.data(), c.data(), false); });
}

double measured_read_rate(int64_t bytes) {
  const int64_t parts = threads();
  const std::vector<float> values(static_cast<size_t>(bytes) / sizeof(float));
  const int64_t part = static_cast<int64_t>(values.size()) / parts;
  const int repeats = static_cast<int>(std::max<int64_t>(1, 4'000'000 / bytes));
  std::vector<float> sums(static_cast<size_t>(parts));
  const double seconds = shortest([&] {
    parallel_for(parts, 1e9, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int k = 0; k < repeats; ++k) sums[static_cast<size_t>(i)] += sum(values.data() + i * part, part);
    });
  });
  volatile float used = sums[0];
  static_cast<void>(used);
  return static_cast<double>(bytes) * repeats / seconds;
}

double lower_bound_ms(const Cell& cell, const Size& size, Mode mode, double flops, double read_rate) {
  const auto batch = static_cast<double>(size.batch), hidden = static_cast<double>(size.hidden);
  const auto steps = static_cast<double>(size.steps);
  const double weights = cell.rows(Fan::hidden) * hidden * hidden;
  const double step_flops = 2 * batch * weights;
  const double step = std::max(step_flops / flops, sizeof(float) * weights / read_rate);
  double seconds = 0;
  for (int k = 0; k < size.layers; ++k) {
    const auto columns = static_cast<double>(size.layer_inputs(k));
    const double inputs = 2 * steps * batch * cell.rows(Fan::inputs) * hidden * columns / flops;
    seconds += inputs + steps * step;
    if (mode == Mode::training) seconds += 2 * inputs + steps * step + steps * step_flops / flops;
  }
  return 1000 * seconds;
}

}  // namespace stepnet::bench
