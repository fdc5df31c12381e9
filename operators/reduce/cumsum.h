// The arguments of Cumsum; see cumsum.cc.
#pragma once

#include <cstdint>

namespace stepnet {

struct CumsumArgs {
  int32_t axis = 0;
  bool exclusive = false;
  bool reverse = false;
};

}  // namespace stepnet
