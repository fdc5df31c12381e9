// The arguments of LayerNormSecondGradient, and where its inputs and outputs stand; see layer_norm_second.cc.
#pragma once

#include <cstdint>

namespace stepnet {

struct LayerNormSecondArgs {
  int32_t axis = 1;
};

namespace layer_norm_second {
constexpr int kMean = 0, kStd = 1, kX = 2, kDy = 3, kGamma = 4, kDstd = 5, kDdx = 6, kDdgamma = 7, kDdbeta = 8;
constexpr int kDyGrad = 0, kMeanGrad = 1, kStdGrad = 2, kXGrad = 3, kGammaGrad = 4, kDmeanGrad = 5, kDstdGrad = 6;
}  // namespace layer_norm_second

}  // namespace stepnet
