// The arguments of SumElements, SumSqrElements, LpNorm and their gradients; see sum_elements.cc. Threads: pure
// functions.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

struct SumArgs {
  bool average = false;
};

struct LpNormArgs : SumArgs {
  int64_t p = 2;
};

// What LpNorm adds of each element, and its derivative.
template <class T>
constexpr T lp_term(int64_t p, T x) {
  return p == 2 ? x * x : x < 0 ? -x : x;
}
template <class T>
constexpr T lp_slope(int64_t p, T x) {
  return p == 2 ? x + x : x > 0 ? T(1) : x < 0 ? T(-1) : T(0);
}

inline double sum_divisor(const SumArgs& a, size_t size) {
  return a.average && size > 0 ? static_cast<double>(size) : 1;
}

}  // namespace stepnet
