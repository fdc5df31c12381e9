// The arithmetic of Lamb; see lamb.cc. Threads: pure functions.
#pragma once

#include "operators/optimizer/adam.h"

namespace stepnet {

struct LambArgs {
  float beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
};

// One step's numbers.
template <class T>
struct LambStep {
  T beta1, beta2, epsilon, decay, correction1, correction2;
  double lr;

  // Throws Error on a negative iteration.
  static LambStep of(const LambArgs& args, const Tensor& lr, const Tensor& iter) {
    return {args, lr.item<double>(), static_cast<double>(AdamStep<T>::checked(iter.item<int64_t>()))};
  }
  constexpr LambStep(const LambArgs& args, double rate, double iter)
      : beta1(args.beta1),
        beta2(args.beta2),
        epsilon(args.epsilon),
        decay(args.weight_decay),
        correction1(static_cast<T>(1 - std::pow(double{args.beta1}, iter + 1))),
        correction2(static_cast<T>(1 - std::pow(double{args.beta2}, iter + 1))),
        lr(rate) {}

  constexpr T mean(T m1, T g) const { return beta1 * m1 + (1 - beta1) * g; }
  constexpr T mean_square(T m2, T g) const { return beta2 * m2 + (1 - beta2) * g * g; }
  // From the moments after the step and the parameter before it.
  constexpr T direction(T m1, T m2, T param) const {
    return m1 / correction1 / (std::sqrt(m2 / correction2) + epsilon) + decay * param;
  }
  // What the direction is multiplied by.
  constexpr T rate(double param_squares, double direction_squares) const {
    const bool both = param_squares > 0 && direction_squares > 0;
    return static_cast<T>(both ? lr * (std::sqrt(param_squares) / std::sqrt(direction_squares)) : lr);
  }
};

}  // namespace stepnet
