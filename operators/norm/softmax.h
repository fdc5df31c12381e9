// The arguments of Softmax and its gradients; see softmax.cc.
#pragma once

#include <cstdint>

namespace stepnet {

struct SoftmaxArgs {
  int32_t axis = 1;
};

}  // namespace stepnet
