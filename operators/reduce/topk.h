// The arguments of TopK and ArgMax; see topk.cc.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

struct TopKArgs {
  int64_t k = 1;
  int32_t axis = -1;
};

struct ArgMaxArgs {
  int32_t axis = -1;
  bool keepdims = true;
};

}  // namespace stepnet
