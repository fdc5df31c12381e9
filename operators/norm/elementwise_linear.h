// The arguments of ElementwiseLinear; see elementwise_linear.cc.
#pragma once

#include <cstdint>

namespace stepnet {

struct LinearArgs {
  int32_t axis = 1;
};

}  // namespace stepnet
