// The arguments of Split; see split.cc. Threads: pure functions.
#pragma once

#include <vector>

#include "operators/shape/concat.h"

namespace stepnet {

struct SplitArgs : ConcatArgs {
  std::vector<int64_t> split;
};

// The size of each part. `given` is the second input, on the CPU, null if there is none. Throws Error.
std::vector<int64_t> part_sizes(const SplitArgs& args, const Shape& x, const Tensor* given, int parts);

}  // namespace stepnet
