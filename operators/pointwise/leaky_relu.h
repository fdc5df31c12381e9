// The arguments and the arithmetic of LeakyRelu; see leaky_relu.cc.
#pragma once

namespace stepnet {

struct LeakyReluArgs {
  float alpha = 0;
};

template <class T>
struct LeakyReluValue {
  T alpha;
  constexpr T operator()(T x) const { return x > T(0) ? x : alpha * x; }
};

// dX from Y and dY.
template <class T>
struct LeakyReluSlope {
  T alpha;
  constexpr T operator()(T y, T dy) const { return y > T(0) ? dy : alpha * dy; }
};

}  // namespace stepnet
