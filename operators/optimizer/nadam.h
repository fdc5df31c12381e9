// The arithmetic of NAdam; see nadam.cc. Threads: pure functions.
#pragma once

#include "operators/optimizer/adam.h"

namespace stepnet {

struct NAdamArgs {
  float beta1 = 0, beta2 = 0, epsilon = 0, momentum_decay = 0;
};

// One step's numbers.
template <class T>
struct NAdamStep {
  T beta1, beta2, epsilon, correction, of_gradient, of_mean;
  double product;  // of all momenta so far, this step's included

  // Throws Error on a negative iteration.
  static NAdamStep of(const NAdamArgs& args, const Tensor& lr, const Tensor& iter, double product_before) {
    return {args, lr.item<double>(), static_cast<double>(AdamStep<T>::checked(iter.item<int64_t>())), product_before};
  }
  constexpr NAdamStep(const NAdamArgs& args, double lr, double iter, double product_before)
      : beta1(args.beta1),
        beta2(args.beta2),
        epsilon(args.epsilon),
        correction(static_cast<T>(1 - std::pow(double{args.beta2}, iter + 1))),
        product(product_before * momentum(args, iter + 1)) {
    const double now = momentum(args, iter + 1), next = momentum(args, iter + 2);
    of_gradient = static_cast<T>(lr * (1 - now) / (1 - product));
    of_mean = static_cast<T>(lr * next / (1 - product * next));
  }

  // Of step t, counted from 1.
  static constexpr double momentum(const NAdamArgs& args, double t) {
    return double{args.beta1} * (1 - 0.5 * std::pow(0.96, t * double{args.momentum_decay}));
  }

  // On a run of elements; the results may stand where the values were.
  constexpr void operator()(int64_t size, const T* grad, const T* param, const T* m1, const T* m2, T* new_param,
                            T* new_m1, T* new_m2) const {
    for (int64_t i = 0; i < size; ++i) {
      const T g = grad[i];
      const T a = new_m1[i] = beta1 * m1[i] + (1 - beta1) * g;
      const T b = new_m2[i] = beta2 * m2[i] + (1 - beta2) * g * g;
      new_param[i] = param[i] + (of_gradient * g + of_mean * a) / (std::sqrt(b / correction) + epsilon);
    }
  }
};

}  // namespace stepnet
