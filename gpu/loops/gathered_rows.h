// What Gather and BatchGather share on a GPU; see operators/index/gather.h. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/by_width.h"
#include "gpu/loops/indexed_slices.h"
#include "operators/index/gather.h"

namespace stepnet::gpu {

// Elements are copied as they are, whatever their type; a bad index gives zeros and an error.
template <class T>
void copy_gathered(const Call& call, const GatheredRows& rows, const Indices& indices, const T* from, T* to) {
  const Bounds bounds = gpu::bounds(call, "an index");
  const int64_t inner = rows.data.inner, size = rows.data.size, count = rows.count;
  const Divider lines(static_cast<size_t>(inner)), tables(static_cast<size_t>(count));
  each(call, static_cast<size_t>(rows.data.outer * count * inner), [=] __device__(size_t i) {
    const auto [line, column] = lines.split(i);
    const auto [o, k] = tables.signed_split(line);
    const int64_t index = indices[static_cast<size_t>(rows.place(o, k))];
    to[i] = bounds.inside(index, size) ? from[(o * size + index) * inner + static_cast<int64_t>(column)] : T{0};
  });
}

inline void gather_rows(const Call& call, const GatherArgs& args, const Tensor& data, const Tensor& indices,
                        Tensor& y) {
  const GatheredRows rows(args, data.shape(), indices.shape());
  const Indices places(indices);
  if (!rows.match) return gather_slices(call, places, rows.data, data, y);
  by_width(data, [&](auto element) {
    using T = decltype(element);
    copy_gathered(call, rows, places, elements<T>(data), elements<T>(y));
  });
}

// dx, which is zeros, plus the rows dy where they came from, in their order. Tables with indices of their own are
// changed by one thread for each column.
template <class T>
void scatter_rows(const Call& call, const GatheredRows& rows, const Indices& indices, In<T> dy, Out<T> dx) {
  if (!rows.match) return add_slices(call, indices, rows.data, dy.data, dx.data);
  const Bounds bounds = gpu::bounds(call, "an index");
  const int64_t inner = rows.data.inner, size = rows.data.size, count = rows.count;
  const Divider lines(static_cast<size_t>(inner));
  each(call, static_cast<size_t>(rows.data.outer * inner), [=] __device__(size_t i) {
    const auto [o, column] = lines.signed_split(i);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t index = indices[static_cast<size_t>(rows.place(o, k))];
      if (bounds.inside(index, size)) dx[(o * size + index) * inner + column] += dy[(o * count + k) * inner + column];
    }
  });
}

}  // namespace stepnet::gpu
