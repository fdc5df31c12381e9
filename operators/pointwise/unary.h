// The derivative of Abs; see abs.cc.
#pragma once

namespace stepnet {

// dY with the sign of X.
template <class T>
struct AbsSlope {
  constexpr T operator()(T x, T dy) const { return x > T(0) ? dy : x < T(0) ? -dy : T(0); }
};

}  // namespace stepnet
