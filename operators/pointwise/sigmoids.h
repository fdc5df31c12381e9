// The arguments and the arithmetic of Softsign, HardSigmoid and Gelu; see sigmoids.cc. Threads: pure functions.
#pragma once

#include <cmath>
#include <numbers>

namespace stepnet {

template <class T>
struct SoftsignValue {
  constexpr T operator()(T x) const { return x / (T(1) + std::abs(x)); }
};

// dX from X and dY.
template <class T>
struct SoftsignSlope {
  constexpr T operator()(T x, T dy) const {
    const T size = T(1) + std::abs(x);
    return dy / (size * size);
  }
};

struct HardSigmoidArgs {
  float alpha = 0, beta = 0;
};

template <class T>
struct HardSigmoidValue {
  T alpha, beta;
  constexpr T operator()(T x) const {
    const T line = alpha * x + beta;
    return line < T(0) ? T(0) : line > T(1) ? T(1) : line;
  }
};

// dX from Y and dY.
template <class T>
struct HardSigmoidSlope {
  T alpha;
  constexpr T operator()(T y, T dy) const { return y > T(0) && y < T(1) ? alpha * dy : T(0); }
};

struct GeluArgs {
  bool fast_gelu = false;
};

constexpr double kNormalDensityAtZero = std::numbers::inv_sqrtpi / std::numbers::sqrt2;

// By erfc, so that small values are exact too.
template <class T>
constexpr T normal_distribution(T x) {
  return T(0.5) * std::erfc(-x / std::numbers::sqrt2_v<T>);
}

template <class T>
struct GeluValue {
  constexpr T operator()(T x) const { return x * normal_distribution(x); }
};

// dX from dY and X.
template <class T>
struct GeluSlope {
  constexpr T operator()(T dy, T x) const {
    const T density = static_cast<T>(kNormalDensityAtZero) * std::exp(T(-0.5) * x * x);
    return dy * (normal_distribution(x) + x * density);
  }
};

// The approximation X (1 + tanh(u)) / 2 with u = kFastGelu (X + kFastGeluCube X^3).
constexpr double kFastGelu = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kFastGeluCube = 0.044715;

template <class T>
struct FastGeluValue {
  constexpr T operator()(T x) const {
    const T u = static_cast<T>(kFastGelu) * (x + static_cast<T>(kFastGeluCube) * x * x * x);
    return T(0.5) * x * (1 + std::tanh(u));
  }
};

// dX from dY and X: with t = tanh(u), dY (1 + t + X (1 - t^2) du/dX) / 2.
template <class T>
struct FastGeluSlope {
  constexpr T operator()(T dy, T x) const {
    const T c = static_cast<T>(kFastGelu), cube = static_cast<T>(kFastGeluCube), square = cube * x * x;
    const T t = std::tanh(c * x * (1 + square)), bend = 1 - t * t;  // 0 long before the square is infinite
    return T(0.5) * dy * (1 + t + (bend == 0 ? T(0) : x * bend * c * (1 + 3 * square)));
  }
};

}  // namespace stepnet
