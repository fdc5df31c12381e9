// The arguments of LayerNorm and LayerNormGradient; see layer_norm.cc.
#pragma once

#include <cstdint>

namespace stepnet {

struct LayerNormArgs {
  int32_t axis = 1;
  float epsilon = 1e-5F;
  bool elementwise_affine = false;
};

}  // namespace stepnet
