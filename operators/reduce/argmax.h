// The arguments of ArgMax; see argmax.cc.
#pragma once

#include "core/operator/operator.h"

namespace stepnet {

struct ArgMaxArgs {
  int32_t axis = -1;
  bool keepdims = true;
};

}  // namespace stepnet
