// The arithmetic of HuberLoss and SmoothL1Loss (huber_loss.cc), of one difference, for the CPU and for GPUs. Threads:
// pure functions.
#pragma once

#include <cmath>

namespace stepnet {

struct HuberArgs {
  float bound = 1;  // delta of HuberLoss, beta of SmoothL1Loss
};

// d^2 / 2 up to the bound, and from there on a line that continues it.
constexpr double huber(double difference, double bound) {
  const double size = std::abs(difference), part = size < bound ? size : bound;
  return part * (size - 0.5 * part);
}

}  // namespace stepnet
