// The arguments of UniformFill and UniformIntFill; see uniform_fill.cc.
#pragma once

#include <optional>

#include "operators/fill/random_fill.h"

namespace stepnet {

struct UniformArgs : RandomFillArgs {
  std::optional<float> min, max;
};

struct UniformIntArgs : FillShape {
  std::optional<int32_t> min, max;
};

}  // namespace stepnet
