// The arguments of ClipTensorByScaling; see clip_tensor_by_scaling.cc.
#pragma once

#include "core/operator/operator.h"

namespace stepnet {

struct ScalingClipArgs {
  float threshold = 0;
};

}  // namespace stepnet
