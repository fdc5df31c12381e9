// The arguments of TopK and its gradients; see topk.cc.
#pragma once

#include "core/operator/operator.h"

namespace stepnet {

struct TopKArgs {
  int64_t k = 1;
  int32_t axis = -1;
};

}  // namespace stepnet
