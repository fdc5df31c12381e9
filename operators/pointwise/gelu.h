// The arguments and the arithmetic of Gelu; see gelu.cc.
#pragma once

#include <cmath>
#include <numbers>

namespace stepnet {

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

}  // namespace stepnet
