// Division of integers on a GPU, where a divisor of 0 is noted as an error, and its result is 0. Threads: as
// gpu/runtime/launch.h.
#pragma once

#include <type_traits>

#include "gpu/loops/elementwise.h"

namespace stepnet::gpu {

// Op()(a, b) for a b that is not 0.
template <class Op, class T>
struct DivideIfDefined {
  constexpr T operator()(T a, T b) const { return b == T(0) ? T(0) : Op()(a, b); }
};

template <class T>
void note_zeros(const Call& call, In<T> divisors) {
  const Bounds bounds = gpu::bounds(call, "a divisor of integers");
  each(call, divisors.size, [=] __device__(size_t i) {
    if (divisors[i] == T(0)) bounds.report(0, kNoLimit);
  });
}

// c = Op()(a, b) over broadcast operands, where Op is a division of some kind.
template <class Op, class T>
void divide(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  if constexpr (std::is_integral_v<T>) {
    if (c.size > 0) note_zeros(call, b);
    binary<DivideIfDefined<Op, T>>(args, a, b, c, call);
  } else {
    binary<Op>(args, a, b, c, call);
  }
}

}  // namespace stepnet::gpu
