// Elements of a line in the order of ArgMax and TopK: the greatest comes first, NaN before all numbers, and of equal
// ones the first. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/lines.h"

namespace stepnet::gpu {

// An element and its place along the line; an index of -1 is none, and comes last.
template <class T>
struct Candidate {
  T value = 0;
  int64_t index = -1;
};

template <class T>
__host__ __device__ bool is_greater(T a, T b) {
  return a > b || (a != a && b == b);
}

template <class T>
__host__ __device__ bool comes_before(const Candidate<T>& a, const Candidate<T>& b) {
  if (a.index < 0 || b.index < 0) return a.index >= 0 && b.index < 0;
  return is_greater(a.value, b.value) || (!is_greater(b.value, a.value) && a.index < b.index);
}

// The first of the elements line[0], line[inner], ... that come behind `last`, which may be none.
template <class T, class Worker>
__device__ Candidate<T> next_greatest(const T* line, size_t size, size_t inner, const Candidate<T>& last,
                                      const Worker& worker) {
  Candidate<T> best;
  for (size_t k = worker.thread; k < size; k += Worker::size) {
    const Candidate<T> here{line[k * inner], static_cast<int64_t>(k)};
    if (last.index >= 0 && !comes_before(last, here)) continue;
    if (comes_before(here, best)) best = here;
  }
  return worker.reduce(best, [](const Candidate<T>& a, const Candidate<T>& b) { return comes_before(b, a) ? b : a; });
}

}  // namespace stepnet::gpu
