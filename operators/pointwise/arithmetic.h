// The arguments and the arithmetic of Div, FMod, TruncDiv, Scale and Pow, and of the gradient operators of Add, Sub,
// Mul and Div; see arithmetic.cc. Threads: pure functions.
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

// Which inputs are dC, A, B and C. A DivGradient of three inputs has B, C and dC, and A has C's shape.
struct ArithmeticInputs {
  int dc = 0, a = 1, b = 2, c = 3;
};
inline ArithmeticInputs arithmetic_inputs(bool divides, int count) {
  return divides && count == 3 ? ArithmeticInputs{2, 1, 0, 1} : ArithmeticInputs{};
}

// An element of the result: where dC and C, A, and B are, and at which of their elements. Not all may be there.
template <class T>
struct ArithmeticPlace {
  const T *dc = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  int64_t at = 0, at_a = 0, at_b = 0;
};

// What an element of dC adds to dA and to dB.
struct AddTerms {
  template <class T>
  static constexpr T a(const ArithmeticPlace<T>& p) {
    return p.dc[p.at];
  }
  template <class T>
  static constexpr T b(const ArithmeticPlace<T>& p) {
    return p.dc[p.at];
  }
};
struct SubTerms {
  template <class T>
  static constexpr T a(const ArithmeticPlace<T>& p) {
    return p.dc[p.at];
  }
  template <class T>
  static constexpr T b(const ArithmeticPlace<T>& p) {
    return static_cast<T>(-p.dc[p.at]);
  }
};
struct MulTerms {
  template <class T>
  static constexpr T a(const ArithmeticPlace<T>& p) {
    return static_cast<T>(p.dc[p.at] * p.b[p.at_b]);
  }
  template <class T>
  static constexpr T b(const ArithmeticPlace<T>& p) {
    return static_cast<T>(p.dc[p.at] * p.a[p.at_a]);
  }
};
struct DivTerms {
  template <class T>
  static constexpr T a(const ArithmeticPlace<T>& p) {
    return static_cast<T>(p.dc[p.at] / p.b[p.at_b]);
  }
  template <class T>
  static constexpr T b(const ArithmeticPlace<T>& p) {
    return static_cast<T>(-p.dc[p.at] * p.c[p.at] / p.b[p.at_b]);
  }
};

}  // namespace stepnet
