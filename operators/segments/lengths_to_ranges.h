// What LengthsToWeights' kernels share.
#pragma once

namespace stepnet {

struct LengthsToWeightsArgs {
  float power = 0.5f;
};

}  // namespace stepnet
