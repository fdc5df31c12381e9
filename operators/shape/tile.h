// The arguments of Tile and its gradient; see tile.cc.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

struct TileArgs {
  int64_t tiles = 1;
  int32_t axis = 0;
};

}  // namespace stepnet
