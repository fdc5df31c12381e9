// The arguments of Shape; see shape.cc.
#pragma once

#include <cstdint>
#include <vector>

namespace stepnet {

struct ShapeArgs {
  std::vector<int64_t> axes;
};

}  // namespace stepnet
