// The arguments and the derivative of Elu; see elu.cc.
#pragma once

namespace stepnet {

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
