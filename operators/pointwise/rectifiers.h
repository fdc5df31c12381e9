// The arguments and the arithmetic of LeakyRelu and Elu; see rectifiers.cc. Threads: pure functions.
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

struct EluArgs {
  float alpha = 1;
};

// dX from Y and dY.
template <class T>
struct EluSlope {
  T alpha;
  constexpr T operator()(T y, T dy) const { return y > T(0) ? dy : dy * (y + alpha); }
};

}  // namespace stepnet
