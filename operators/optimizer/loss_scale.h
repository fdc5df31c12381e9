// The arguments and the arithmetic of UpdateLossScale; see loss_scale.cc. Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>

namespace stepnet {

struct LossScaleArgs {
  float growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

template <class T>
struct LossScale {
  T scale = 1;
  int32_t good_steps = 0;
};

// A scale that would be infinite stays as it is.
template <class T>
constexpr LossScale<T> updated_scale(LossScale<T> now, bool finite, LossScaleArgs args) {
  if (!finite) return {now.scale * static_cast<T>(args.backoff_factor), 0};
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const int32_t good = now.good_steps < kMost ? now.good_steps + 1 : kMost;
  if (good < args.growth_interval) return {now.scale, good};
  const T grown = now.scale * static_cast<T>(args.growth_factor);
  return {grown - grown == 0 ? grown : now.scale, 0};
}

}  // namespace stepnet
