// What the random fills of floats share: element i is a function of the operator's key and i alone, the same as on the
// CPU (operators/fill/random_fill.h). Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/runtime/launch.h"
#include "operators/fill/random_fill.h"
#include "stepnet/random.h"

namespace stepnet::gpu {

// y[i] = draw(i)
template <class T, class Draw>
void fill_by_draws(const Call& call, Tensor& y, Draw draw) {
  const Out<T> to = out_span<T>(y);
  each(call, to.size, [=] __device__(size_t i) { to[i] = static_cast<T>(draw(i)); });
}

// Y is float or double.
template <class Draw>
void fill_by_draws_any(const Call& call, Tensor& y, Draw draw) {
  if (y.dtype() == DType::float64) return fill_by_draws<double>(call, y, draw);
  fill_by_draws<float>(call, y, draw);
}

// Normal with this mean and standard deviation.
inline void fill_normal(const Call& call, double mean, double std, Tensor& y) {
  const uint64_t key = call.random_key;
  fill_by_draws_any(call, y, [=] __device__(size_t i) { return mean + std * random_normal(key, i); });
}

// Uniform in [-limit, limit).
inline void fill_centred(const Call& call, double limit, Tensor& y) {
  const uint64_t key = call.random_key;
  fill_by_draws_any(call, y, [=] __device__(size_t i) { return limit * (2 * random_uniform(key, i) - 1); });
}

}  // namespace stepnet::gpu
