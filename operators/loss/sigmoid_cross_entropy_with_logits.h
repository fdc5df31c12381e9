// The arithmetic of SigmoidCrossEntropyWithLogits; see sigmoid_cross_entropy_with_logits.cc. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cmath>

#include "operators/loops/axis_rows.h"

namespace stepnet {

// A scalar is one row of one element.
inline AxisRows logit_rows(const Shape& x) {
  const int before = std::max(x.rank() - 1, 0);
  return {x.size_between(0, before), x.size_between(before, x.rank())};
}

constexpr double logit_loss(double x, double t) {
  return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x)));
}

// exp is of a negative number only.
constexpr double logit_sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

}  // namespace stepnet
