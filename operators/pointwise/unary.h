// The arithmetic of operators on one tensor (unary.cc), of one element, for the CPU and for GPUs.
// Threads: pure functions.
#pragma once

#include <cmath>

namespace stepnet {

struct AbsoluteValue {
  template <class T>
  constexpr T operator()(T x) const {
    return std::abs(x);
  }
};

// dY with the sign of X.
template <class T>
struct AbsSlope {
  constexpr T operator()(T x, T dy) const { return x > T(0) ? dy : x < T(0) ? -dy : T(0); }
};

struct Cubed {
  template <class T>
  constexpr T operator()(T x) const {
    return x * x * x;
  }
};

struct CubeRoot {
  template <class T>
  constexpr T operator()(T x) const {
    return std::cbrt(x);
  }
};

struct Cosine {
  template <class T>
  constexpr T operator()(T x) const {
    return std::cos(x);
  }
};

struct ErrorFunction {
  template <class T>
  constexpr T operator()(T x) const {
    return std::erf(x);
  }
};

struct HyperbolicCosine {
  template <class T>
  constexpr T operator()(T x) const {
    return std::cosh(x);
  }
};

struct HyperbolicSine {
  template <class T>
  constexpr T operator()(T x) const {
    return std::sinh(x);
  }
};

struct InverseCosine {
  template <class T>
  constexpr T operator()(T x) const {
    return std::acos(x);
  }
};

struct InverseSine {
  template <class T>
  constexpr T operator()(T x) const {
    return std::asin(x);
  }
};

struct InverseTangent {
  template <class T>
  constexpr T operator()(T x) const {
    return std::atan(x);
  }
};

struct Exponential {
  template <class T>
  constexpr T operator()(T x) const {
    return std::exp(x);
  }
};

struct ExponentialMinusOne {
  template <class T>
  constexpr T operator()(T x) const {
    return std::expm1(x);
  }
};

struct Logarithm {
  template <class T>
  constexpr T operator()(T x) const {
    return std::log(x);
  }
};

struct LogarithmOfOnePlus {
  template <class T>
  constexpr T operator()(T x) const {
    return std::log1p(x);
  }
};

struct Negation {
  template <class T>
  constexpr T operator()(T x) const {
    return -x;
  }
};

struct Inverse {
  template <class T>
  constexpr T operator()(T x) const {
    return T(1) / x;
  }
};

struct InverseSquareRoot {
  template <class T>
  constexpr T operator()(T x) const {
    return T(1) / std::sqrt(x);
  }
};

// Halves go to the even neighbour, as IEEE 754 rounds where nothing else is said.
struct RoundedToEven {
  template <class T>
  constexpr T operator()(T x) const {
    return std::nearbyint(x);
  }
};

struct RoundedDown {
  template <class T>
  constexpr T operator()(T x) const {
    return std::floor(x);
  }
};

struct RoundedUp {
  template <class T>
  constexpr T operator()(T x) const {
    return std::ceil(x);
  }
};

struct SignOf {
  template <class T>
  constexpr T operator()(T x) const {
    return static_cast<T>((x > T(0)) - (x < T(0)));
  }
};

struct Sine {
  template <class T>
  constexpr T operator()(T x) const {
    return std::sin(x);
  }
};

struct Square {
  template <class T>
  constexpr T operator()(T x) const {
    return x * x;
  }
};

struct SquareRoot {
  template <class T>
  constexpr T operator()(T x) const {
    return std::sqrt(x);
  }
};

struct Tangent {
  template <class T>
  constexpr T operator()(T x) const {
    return std::tan(x);
  }
};

}  // namespace stepnet
