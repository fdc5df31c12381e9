// The arguments of IndexAdd and its gradient; see index_add.cc.
#pragma once

#include <cstdint>

namespace stepnet {

struct IndexAddArgs {
  int32_t axis = 0;
};

}  // namespace stepnet
