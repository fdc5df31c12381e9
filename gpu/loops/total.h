// One result of all elements of a large tensor, such as a sum: gpu/loops/reduce.h with a single result. Threads: as
// gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/reduce.h"

namespace stepnet::gpu {

// store(op over value(i) for all i < count, from `first`), which stands for op's neutral element.
template <class T, class Value, class Op, class Store>
void total(const Call& call, size_t count, T first, Value value, Op op, Store store) {
  const auto element = [=] __device__(size_t, size_t i, size_t) { return value(i); };
  const auto whole = [=] __device__(size_t, size_t, T result) { store(result); };
  reduce(call, {1, static_cast<int64_t>(count), 1}, first, element, op, whole);
}

// store(sum of the squares, in double).
template <class T, class Store>
void total_squares(const Call& call, In<T> x, Store store) {
  const auto square = [=] __device__(size_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); };
  total(call, x.size, 0.0, square, std::plus<double>(), store);
}

}  // namespace stepnet::gpu
