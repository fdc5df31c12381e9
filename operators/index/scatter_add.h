// The arguments of ScatterAdd and its gradient; see scatter_add.cc.
#pragma once

#include <cstdint>

namespace stepnet {

struct ScatterAddArgs {
  int32_t axis = 0;
};

}  // namespace stepnet
