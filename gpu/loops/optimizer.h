// What the CUDA kernels of the sparse optimizers share; see operators/optimizer/optimizer.h. Threads: as
// gpu/runtime/launch.h.
#pragma once

#include <type_traits>

#include "gpu/loops/scalar.h"
#include "gpu/loops/temporary.h"

namespace stepnet::gpu {

// What all threads need of a step, such as powers of its number: made by one thread, once in a run, and read by the
// kernels behind it.
template <class Make, class Made = decltype(std::declval<const Make&>()())>
Temporary<Made> made_once(const Call& call, Make make) {
  static_assert(std::is_trivially_copyable_v<Made>);
  Temporary<Made> room(call, 1);
  Made* const to = room.data;
  each(call, 1, [=] __device__(size_t) { *to = make(); });
  return room;
}

constexpr int64_t kRowThreads = 1 << 16;  // that fill a device

// For each k in order, with the row `at` that the k-th index names, calls fn(state, k, at, column) for every column of
// that row. A thread has a column of a part of the rows, so all calls for an element come from one thread; state is
// what start() gave it. Rows that are not in the table are noted and left out.
template <class Start, class Fn>
void for_each_row(const Call& call, const Tensor& index, int64_t table_rows, int64_t columns, Start start, Fn fn) {
  const Indices rows(index);
  if (columns == 0) return;
  const Bounds bounds = gpu::bounds(call, "an index");
  int64_t parts = 1;  // a power of two
  while (parts < table_rows && parts < rows.size && parts * columns < kRowThreads) parts *= 2;
  const Divider row(static_cast<size_t>(columns));
  each(call, static_cast<size_t>(rows.size > 0 ? parts * columns : 0), [=] __device__(size_t i) {
    const auto [part, column] = row.signed_split(i);
    const auto state = start();
    for (int64_t k = 0; k < rows.size; ++k) {
      const int64_t at = rows[static_cast<size_t>(k)];
      if ((at & (parts - 1)) == part && bounds.inside(at, table_rows)) fn(state, k, at, column);
    }
  });
}

// A start that gives what was made once.
template <class Made>
struct ReadOf {
  const Made* made;
  __device__ Made operator()() const { return *made; }
};
template <class Made>
ReadOf<Made> read_of(const Temporary<Made>& made) {
  return {made.data};
}

// A start that gives the learning rate.
template <class T>
struct RateOf {
  Scalar lr;
  __device__ T operator()() const { return static_cast<T>(lr.value()); }
};

}  // namespace stepnet::gpu
