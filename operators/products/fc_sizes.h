// The sizes of the product that FC and its kin are; see fc_product.h. Threads: pure functions.
#pragma once

#include <optional>

#include "core/compute/matmul.h"
#include "core/operator/operator.h"

namespace stepnet {

struct FcSizes {
  int64_t m = 0, n = 0, k = 0;
  int64_t columns = 0;      // of W
  int64_t first = 0;        // of them in the window
  bool transposed = false;  // W is [k, n], and has no window
  bool whole() const { return transposed || k == columns; }
  ColumnsIn in_w() const { return transposed ? ColumnsIn{} : ColumnsIn{first, columns}; }
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

inline Shape fc_output_shape(int32_t axis, const Shape& x, int64_t n) {
  Shape y(x.dims().first(canonical_axis(axis, x.rank())));
  y.push_back(n);
  return y;
}

}  // namespace stepnet
