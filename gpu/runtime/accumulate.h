// What kernels compute in: float for halves, whose results are rounded once, where they are written; else the element
// type. Sums, too, are never in a half type. Threads: pure functions.
#pragma once

#include "stepnet/half.h"

namespace stepnet::gpu {

template <class T>
struct AccumulateOf {
  using type = T;
};
template <>
struct AccumulateOf<float16> {
  using type = float;
};
template <>
struct AccumulateOf<bfloat16> {
  using type = float;
};
template <class T>
using Accumulate = typename AccumulateOf<T>::type;

}  // namespace stepnet::gpu
