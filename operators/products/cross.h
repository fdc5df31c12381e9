// The arguments of Cross; see cross.cc.
#pragma once

#include <cstdint>

namespace stepnet {

struct CrossArgs {
  int32_t axis = -1;
};

}  // namespace stepnet
