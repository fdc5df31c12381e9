// The arguments of MatMul, and the sizes of the matrices in products; see matmul.cc.
#pragma once

#include "core/operator/operator.h"

namespace stepnet {

struct MatMulArgs {
  int32_t axis_a = 1;
  int32_t axis_b = 1;
  bool trans_a = false;
  bool trans_b = false;
  int32_t axis_y = 1;
};

struct MatrixSizes {
  int64_t rows = 0, columns = 0;  // of op(A)
};

inline MatrixSizes flattened_matrix(const Shape& shape, int32_t axis, bool transposed) {
  const int a = canonical_axis(axis, shape.rank());
  const MatrixSizes m{shape.size_between(0, a), shape.size_between(a, shape.rank())};
  return transposed ? MatrixSizes{m.columns, m.rows} : m;
}

}  // namespace stepnet
