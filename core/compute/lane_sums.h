// The sum of a vector's lanes, for files that build kernels for one instruction set each; see vector_functions.h.
#pragma once

#include <utility>

namespace stepnet {

// By halves, which takes the fewest instructions.
template <class Vector, int... L>
[[gnu::always_inline]] static inline auto halves_sum(const Vector& v, std::integer_sequence<int, L...>) {
  constexpr int half = sizeof...(L);
  return __builtin_shufflevector(v, v, L...) + __builtin_shufflevector(v, v, (L + half)...);
}

// Of a vector of `Size` lanes, a power of 2.
template <int Size, class Vector>
[[gnu::always_inline]] static inline auto sum_of(const Vector& v) {
  if constexpr (Size == 2) {
    return v[0] + v[1];
  } else {
    return sum_of<Size / 2>(halves_sum(v, std::make_integer_sequence<int, Size / 2>()));
  }
}

}  // namespace stepnet
