// The arithmetic of Softsign; see softsign.cc.
#pragma once

#include <cmath>

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

}  // namespace stepnet
