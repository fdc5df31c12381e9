// The arguments of Normalize and its gradients, and the least norm that divides a line; see normalize.cc.
#pragma once

#include <cstdint>

namespace stepnet {

constexpr double kLeastNorm = 1e-12;

struct NormalizeArgs {
  int32_t axis = -1;
};

}  // namespace stepnet
