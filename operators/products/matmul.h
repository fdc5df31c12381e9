// The arguments and sizes of MatMul, BatchMatMul and MV; see matmul.cc. Threads: pure functions.
#pragma once

#include <algorithm>

#include "operators/loops/broadcast.h"
#include "stepnet/operator.h"

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

// The arguments of BatchMatMul, its matrices and how its batches go together.
struct BatchMatmulArgs {
  bool trans_a = false;
  bool trans_b = false;
  bool broadcast = false;
};

inline MatrixSizes batch_matrix(const Shape& shape, bool transposed) {
  const MatrixSizes m{shape.at(-2), shape.at(-1)};
  return transposed ? MatrixSizes{m.columns, m.rows} : m;
}

inline Shape batch_with_rank(Shape batch, int rank) {
  while (batch.rank() < rank) batch = batch.prepend(1);
  return batch;
}

inline Broadcast batches_of(const BatchMatmulArgs& args, const Shape& a, const Shape& b) {
  BroadcastArgs broadcast;
  broadcast.broadcast = args.broadcast;
  const Shape x(a.dims().first(a.rank() - 2)), y(b.dims().first(b.rank() - 2));
  require(args.broadcast || x == y,
          "A {} and B {} are batches of matrices, but of {} and {}; without broadcast: 1 these must be equal", a, b, x,
          y);
  require(x.rank() == y.rank() || args.broadcast, "A {} and B {} have different ranks", a, b);
  const int rank = std::max(x.rank(), y.rank());
  return broadcast_shapes(broadcast, batch_with_rank(x, rank), batch_with_rank(y, rank));
}

struct MVArgs {
  bool trans = false;
};

}  // namespace stepnet
