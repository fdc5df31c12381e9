// The arguments of LogSoftmax and its gradients; see log_softmax.cc.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

struct LogSoftmaxArgs {
  int32_t axis = 1;
};

}  // namespace stepnet
