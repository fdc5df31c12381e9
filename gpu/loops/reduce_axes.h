// What the CUDA kernels of the reductions over dimensions share; see operators/reduce/reduce_axes.h. Threads: as
// gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/row_sums.h"
#include "gpu/runtime/accumulate.h"
#include "operators/reduce/reduce.h"

namespace stepnet::gpu {

struct Same {
  template <class T>
  constexpr T operator()(T v) const {
    return v;
  }
};

// Each y is finish(map(x) of its elements, joined by join), from `first`. Functors, in Reduced.
template <class T>
using Reduced = ReductionType<Accumulate<T>>;
template <class T, class Map, class Join, class Finish>
void reduce_values(const ReduceArgs& a, In<T> x, Out<T> y, Call& call, Reduced<T> first, Map map, Join join,
                   Finish finish) {
  using Wide = Reduced<T>;
  const Shape& shape = call.in(0).shape();
  reduce_dims(
      call, ReducedDims(shape, reduced_shape(a, shape)), first,
      [=] __device__(size_t i) { return map(static_cast<Wide>(x[i])); }, join,
      [=] __device__(size_t j, Wide v) { y[j] = static_cast<T>(finish(v)); });
}

inline AxisRows whole_rows(const ReduceArgs& a, const Shape& x) {
  return whole_rows(ReducedDims(x, reduced_shape(a, x)));
}

// How many elements of an x of this shape each result is of.
inline int64_t values_of_each(const ReduceArgs& a, const Shape& x) {
  return ReducedDims(x, reduced_shape(a, x)).axis.count;
}

// Of each element of input 1, X, its place in Y.
inline Strided places_in_result(const ReduceArgs& a, const Call& call) {
  const Shape& x = call.in(1).shape();
  return places_of(x, reduced_shape(a, x));
}

// The join of extremes; see reduce_extreme.
template <class Before>
struct ExtremeOf {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const {
    return Before()(b, a) || b != b ? b : a;
  }
};

}  // namespace stepnet::gpu
