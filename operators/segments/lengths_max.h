// What LengthsMax's kernels share. Threads: pure functions.
#pragma once

namespace stepnet {

// NaN counts as greater than any number.
struct LargerOrNan {
  template <class T>
  constexpr T operator()(T a, T b) const {
    return a >= b || a != a ? a : b;
  }
};

// Whether an element has the maximum's value.
template <class T>
constexpr bool is_maximum(T x, T maximum) {
  return x == maximum || (x != x && maximum != maximum);
}

}  // namespace stepnet
