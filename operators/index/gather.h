// What Gather and BatchGather take along an axis; see gather.cc and batch_gather.cc. Threads: pure functions.
#pragma once

#include "core/compute/threads.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/indices.h"
#include "operators/loops/one_axis.h"

namespace stepnet {

struct GatherArgs {
  int64_t axis = 0;
  bool match_outer = false;
  bool dense_gradient = false;  // Gather's alone
};

// DATA as `data.outer` tables of `data.size` rows of `data.inner` elements, from each of which `count` rows are taken:
// by all indices, or, if they `match`, by those of its own.
struct GatheredRows {
  OneAxis data;
  int64_t count = 0;
  bool match = false;

  GatheredRows(const GatherArgs& a, const Shape& shape, const Shape& indices) : match(a.match_outer) {
    const int axis = canonical_axis(a.axis, shape.rank());
    data = {shape.size_between(0, axis), shape[axis], shape.size_between(axis + 1, shape.rank())};
    count = match ? indices.size_between(axis, indices.rank()) : indices.size();
  }
  // The place among the indices of the one for row k of table o.
  constexpr int64_t place(int64_t o, int64_t k) const { return match ? o * count + k : k; }
};

// The shape of what is gathered; throws Error if the indices do not match DATA.
inline Shape gathered_shape(const GatherArgs& a, const Shape& data, const Shape& indices) {
  const int axis = canonical_axis(a.axis, data.rank());
  bool matches = !a.match_outer || indices.rank() >= axis;
  for (int i = 0; a.match_outer && matches && i < axis; ++i) matches = indices[i] == data[i];
  require(matches, "with match_outer INDICES must begin with the {} dimensions of DATA {} before the axis, but is {}",
          axis, data, indices);
  Shape y;
  for (int i = 0; i < axis; ++i) y.push_back(data[i]);
  for (int i = a.match_outer ? axis : 0; i < indices.rank(); ++i) y.push_back(indices[i]);
  for (int i = axis + 1; i < data.rank(); ++i) y.push_back(data[i]);
  return y;
}

// The kernel of both on the CPU.
inline void gather_rows(const GatherArgs& a, const Tensor& data, const Tensor& indices, Tensor& y) {
  const GatheredRows rows(a, data.shape(), indices.shape());
  check_indices(indices, rows.data.size);
  if (y.size() == 0) return;
  const int64_t row = rows.data.inner;
  const double nanoseconds = 3 + 0.1 * static_cast<double>(row) * static_cast<double>(dtype_size(data.dtype()));
  with_indices(indices, [&](auto values) {
    parallel_for(rows.data.outer * rows.count, nanoseconds, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t o = i / rows.count, index = values[rows.place(o, i % rows.count)];
        copy_elements(data, (o * rows.data.size + index) * row, y, i * row, row);
      }
    });
  });
}

// How the gradient of DATA is BatchGatherGradient's.
inline std::vector<Argument> gather_args(const GatherArgs& a) {
  return {make_arg("axis", a.axis), make_arg("match_outer", a.match_outer)};
}

}  // namespace stepnet
