// The arithmetic of Adadelta and SparseAdadelta; see adadelta.cc. Threads: pure functions.
#pragma once

#include <cmath>

#include "operators/optimizer/optimizer.h"

namespace stepnet {

struct AdadeltaArgs {
  float decay = 0, epsilon = 0;
};

// One step on a run of elements; the results may stand where the values were.
template <class T>
constexpr void adadelta_run(const AdadeltaArgs& args, T rate, int64_t size, const T* grad, const T* param,
                            const T* moment, const T* delta, T* new_param, T* new_moment, T* new_delta) {
  const T epsilon = args.epsilon, decay = args.decay;
  for (int64_t i = 0; i < size; ++i) {
    const T g = grad[i], h = new_moment[i] = decay * moment[i] + (1 - decay) * (g * g);
    const T step = std::sqrt(delta[i] + epsilon) / std::sqrt(h + epsilon) * g;
    new_param[i] = param[i] + rate * step;
    new_delta[i] = decay * delta[i] + (1 - decay) * (step * step);
  }
}

}  // namespace stepnet
