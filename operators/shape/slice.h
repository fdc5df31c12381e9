// The arguments of Slice and its gradient, and what they cut out; see slice.cc. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/shape.h"

namespace stepnet {

struct SliceArgs {
  std::vector<int64_t> starts, ends;
};

// The one range that is cut out: [begin, begin + size) of dimension `axis`.
struct SliceRange {
  int axis = 0;
  int64_t begin = 0, size = 0;
};

// Throws Error.
SliceRange cut_range(const Shape& x, const std::vector<int64_t>& starts, const std::vector<int64_t>& ends);

}  // namespace stepnet
