// The arguments and the arithmetic of Clip; see clip.cc.
#pragma once

#include <limits>

namespace stepnet {

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
