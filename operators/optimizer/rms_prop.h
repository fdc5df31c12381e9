// The arithmetic of RmsProp; see rms_prop.cc. Threads: pure functions.
#pragma once

#include <cmath>
#include <cstdint>

namespace stepnet {

struct RmsPropArgs {
  float decay = 0, momentum = 0, epsilon = 0;
  bool rate_last = false;
};

// One step on a run of elements; the results may stand where the values were.
template <class T>
constexpr void rms_prop_run(const RmsPropArgs& args, T rate, int64_t size, const T* grad, const T* mean_squares,
                            const T* mom, T* step, T* new_mean_squares, T* new_mom) {
  const T decay = args.decay, momentum = args.momentum, epsilon = args.epsilon;
  for (int64_t i = 0; i < size; ++i) {
    const T g = grad[i];
    const T ms = new_mean_squares[i] = mean_squares[i] + (1 - decay) * (g * g - mean_squares[i]);
    if (args.rate_last) {
      const T m = new_mom[i] = momentum * mom[i] + g / (std::sqrt(ms) + epsilon);
      step[i] = rate * m;
    } else {
      step[i] = new_mom[i] = momentum * mom[i] + rate * g / std::sqrt(epsilon + ms);
    }
  }
}

}  // namespace stepnet
