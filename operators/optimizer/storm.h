// The arithmetic of Storm and SparseStorm; see storm.cc. Threads: pure functions.
#pragma once

#include <cmath>

#include "operators/optimizer/optimizer.h"

namespace stepnet {

struct StormArgs {
  float momentum = 0, beta = 0;
};

// A step's rate and share of the gradient in the moment, from the sum of all squares so far.
template <class T>
struct StormStep {
  T rate, alpha;

  constexpr StormStep(const StormArgs& args, double lr, double squares)
      : rate(static_cast<T>(lr * std::pow(double{args.beta} + squares, -1.0 / 3.0))),
        alpha(static_cast<T>(double{args.momentum}) * rate * rate) {}

  // The results may stand where the values were.
  constexpr void operator()(T grad, const T* param, const T* moment, T* new_param, T* new_moment) const {
    const T m = grad + (1 - alpha) * (*moment - grad);
    *new_param = *param + rate * m;
    *new_moment = m;
  }
};

}  // namespace stepnet
