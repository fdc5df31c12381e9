// The arguments of Transpose and what they do to a shape; see transpose.cc. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "stepnet/shape.h"

namespace stepnet {

struct TransposeArgs {
  std::vector<int64_t> axes;
};

// Arrays, because vectors would allocate in every timestep.
using TransposeOrder = std::array<int, Shape::kMaxRank>;

// The permutation of the first `rank` dimensions, checked; reverses them if none is given. Throws Error.
TransposeOrder permutation(const std::vector<int64_t>& axes, int rank);

// The output's dimensions with the input's stride of each; dimensions that stay neighbours are merged into one, and
// those of size 1 left out.
struct TransposeLayout {
  std::array<int64_t, Shape::kMaxRank> sizes{}, strides{};
  size_t dims = 0;
};
TransposeLayout transpose_layout(const Shape& x, const TransposeOrder& order);

// Where in the input the `index`-th of the first `dims` output dimensions starts.
constexpr int64_t input_offset(const TransposeLayout& layout, size_t dims, int64_t index) {
  int64_t offset = 0;
  for (size_t d = dims; d-- > 0;) {
    offset += index % layout.sizes[d] * layout.strides[d];
    index /= layout.sizes[d];
  }
  return offset;
}

}  // namespace stepnet
