// What operators on pairs of rows share on a GPU; see operators/reduce/row_pairs.h. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/runtime/launch.h"
#include "operators/reduce/row_pairs.h"

namespace stepnet::gpu {

// z[n] is the sum of term(x, y) over row n, in double, times `factor`.
template <class T, class Term>
void sum_pairs(const Call& call, In<T> x, In<T> y, Out<T> z, Term term, double factor) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  const size_t size = static_cast<size_t>(rows.size);
  reduce_axis(
      call, {rows.count, rows.size, 1}, 0.0,
      [=] __device__(size_t n, size_t k, size_t) {
        return term(static_cast<double>(x[n * size + k]), static_cast<double>(y[n * size + k]));
      },
      std::plus<double>(), [=] __device__(size_t n, size_t, double sum) { z[n] = static_cast<T>(sum * factor); });
}

}  // namespace stepnet::gpu
