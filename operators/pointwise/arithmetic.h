// The arguments and the arithmetic of Div, FMod, TruncDiv, Scale and Pow; see arithmetic.cc. Threads: pure functions.
#pragma once

#include <cmath>
#include <optional>
#include <type_traits>

#include "operators/loops/broadcast.h"

namespace stepnet {

template <class T>
struct Quotient {
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      // The least integer has no negative: it stays.
      if (b == -1) return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(a));
    }
    return a / b;
  }
};

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

struct ScaleArgs {
  float scale = 1;
};

struct PowArgs : BroadcastArgs {
  std::optional<float> exponent;
};

template <class T>
struct Power {
  constexpr T operator()(T x, T e) const { return std::pow(x, e); }
};

}  // namespace stepnet
