// The arithmetic of FMod and TruncDiv; see fmod.cc.
#pragma once

#include <cmath>
#include <type_traits>

namespace stepnet {

template <class T>
struct Remainder {
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return b == -1 ? T(0) : a % b;  // of the least integer, -1 would overflow
    } else {
      return std::fmod(a, b);
    }
  }
};

// By way of the remainder, as a / b may be rounded up to a whole number.
template <class T>
struct WholeQuotient {
  constexpr T operator()(T a, T b) const { return std::round((a - std::fmod(a, b)) / b); }
};

}  // namespace stepnet
