// The arguments and the arithmetic of Pow; see pow.cc.
#pragma once

#include <cmath>
#include <optional>

#include "operators/loops/broadcast.h"

namespace stepnet {

struct PowArgs : BroadcastArgs {
  std::optional<float> exponent;
};

template <class T>
struct Power {
  constexpr T operator()(T x, T e) const { return std::pow(x, e); }
};

}  // namespace stepnet
