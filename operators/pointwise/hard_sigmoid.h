// The arguments and the arithmetic of HardSigmoid; see hard_sigmoid.cc.
#pragma once

namespace stepnet {

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

}  // namespace stepnet
