// What optimizers share: checks of their inputs, and the rows of a table that a gradient by index belongs to.
//
// A gradient by index is what Gather gives its table: K indices, of any shape, and K rows, as [indices..., row...].
// Rows of one index are applied one after the other in the order in which they stand, as if each was a step of its own.
// Threads: pure functions.
#pragma once

#include "core/compute/threads.h"
#include "operators/loops/indices.h"
#include "stepnet/operator.h"

namespace stepnet {

inline ArgCheck<float> decay_rate() {
  return [](const float& v) { return v >= 0 && v < 1 ? "" : "must be from 0 to less than 1"; };
}

// The shape functions of optimizers are made of these; each throws Error if what it says is known to be wrong.
inline void require_one_value(const ShapeCall& call, int i, const char* name) {
  if (call.known(i)) require(call.shape(i).size() == 1, "{} must be one value, but has shape {}", name, call.shape(i));
}

inline void require_same_shape(const ShapeCall& call, int i, const char* name, int other, const char* other_name) {
  if (call.known(i) && call.known(other))
    require(call.shape(i) == call.shape(other), "{} has shape {}, but {} {}", name, call.shape(i), other_name,
            call.shape(other));
}

// grad is one row of the table `param` for each index.
inline void require_rows(const ShapeCall& call, int param, int indices, int grad) {
  if (!call.known(param)) return;
  const Shape& table = call.shape(param);
  require(table.rank() >= 1, "param is a single value, which has no rows");
  if (!call.known(indices) || !call.known(grad)) return;
  const Shape& index = call.shape(indices);
  const Shape& rows = call.shape(grad);
  const bool fits = rows.rank() >= index.rank() && rows.size_between(0, index.rank()) == index.size() &&
                    rows.size_between(index.rank(), rows.rank()) == table.size_between(1, table.rank());
  require(fits, "grad has shape {}, but for indices {} it must be {} rows of param {}", rows, index, index.size(),
          table);
}

// Calls fn(k, row) for each index in order: the k-th row of the gradient belongs to this row of the table. Throws Error
// on an index out of range before the first call. Rows of different indices may be called from different threads.
template <class Fn>
void for_each_row(const Tensor& indices, int64_t table_rows, double nanoseconds_per_row, const Fn& fn) {
  check_indices(indices, table_rows);
  with_indices(indices, [&](auto rows) {
    const int parts = parts_for(nanoseconds_per_row * static_cast<double>(rows.size()));
    parallel_parts(parts, [&](int part) {
      for (size_t k = 0; k < rows.size(); ++k)
        if (parts == 1 || rows[k] % parts == part) fn(static_cast<int64_t>(k), static_cast<int64_t>(rows[k]));
    });
  });
}

}  // namespace stepnet
