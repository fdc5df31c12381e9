// The arguments and the arithmetic of Relu, LeakyRelu, Elu and Clip; see rectifiers.cc. Threads: pure functions.
#pragma once

#include <limits>

namespace stepnet {

// NaN stays NaN.
template <class T>
struct ReluValue {
  constexpr T operator()(T x) const { return x < T(0) ? T(0) : x; }
};

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

struct ClipArgs {
  float min = -std::numeric_limits<float>::infinity(), max = std::numeric_limits<float>::infinity();
};

template <class T>
struct ClipValue {
  T least, most;
  constexpr T operator()(T x) const { return x < least ? least : x > most ? most : x; }
};

// dX from Y and dY.
template <class T>
struct ClipSlope {
  T least, most;
  constexpr T operator()(T y, T dy) const { return y > least && y < most ? dy : T(0); }
};

}  // namespace stepnet
