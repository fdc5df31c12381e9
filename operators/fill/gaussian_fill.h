// The arguments of GaussianFill; see gaussian_fill.cc.
#pragma once

#include "operators/fill/random_fill.h"

namespace stepnet {

struct GaussianArgs : RandomFillArgs {
  float mean = 0, std = 0;
};

}  // namespace stepnet
