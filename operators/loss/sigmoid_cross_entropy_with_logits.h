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

struct LogitArgs {
  bool log_d_trick = false, unjoined = false;
};

enum class LogitLoss { joined, unjoined, log_d };
constexpr LogitLoss logit_kind(const LogitArgs& a) {
  return a.unjoined ? LogitLoss::unjoined : a.log_d_trick ? LogitLoss::log_d : LogitLoss::joined;
}

// log(1 + exp(x)) for any x.
constexpr double logit_softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

constexpr double logit_loss(LogitLoss kind, double x, double t) {
  if (kind == LogitLoss::unjoined) return (1 - t) * logit_softplus(x) - x * t;
  if (kind == LogitLoss::log_d) return (2 * t - 1) * logit_softplus(-x);
  return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x)));
}

// exp is of a negative number only.
constexpr double logit_sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

// The loss' derivatives by x and by t.
constexpr double logit_slope(LogitLoss kind, double x, double t) {
  const double p = logit_sigmoid(x);
  return kind == LogitLoss::unjoined ? (1 - t) * p - t : kind == LogitLoss::log_d ? (1 - 2 * t) * (1 - p) : p - t;
}
constexpr double target_slope(LogitLoss kind, double x) {
  if (kind == LogitLoss::unjoined) return -logit_softplus(x) - x;
  return kind == LogitLoss::log_d ? 2 * logit_softplus(-x) : -x;
}

}  // namespace stepnet
