// Where the inputs and outputs of BatchNormSecondGradient stand; see batch_norm_second.cc.
#pragma once

#include "operators/batch_norm.h"

namespace stepnet::batch_norm_second {

constexpr int kX = 0, kScale = 1, kDy = 2, kMean = 3, kInv = 4, kDinv = 5, kDdx = 6, kDdscale = 7, kDdbias = 8;
constexpr int kXGrad = 0, kScaleGrad = 1, kDyGrad = 2, kMeanGrad = 3, kInvGrad = 4, kDmeanGrad = 5, kDinvGrad = 6;

}  // namespace stepnet::batch_norm_second
