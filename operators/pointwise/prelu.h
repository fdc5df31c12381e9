// The arguments and the arithmetic of PRelu; see prelu.cc.
#pragma once

#include <string>

#include "operators/loops/broadcast.h"

namespace stepnet {

struct PReluArgs {
  std::string order = "NCHW";

  bool channels_last() const { return order == "NHWC"; }
  // The slope as it is laid over X.
  BroadcastArgs layout() const {
    return {.broadcast = true, .axis = channels_last() ? -1 : 1, .axis_str = "", .order = "", .equal_shapes = false};
  }
};

template <class T>
struct Bent {
  constexpr T operator()(T x, T slope) const { return x > T(0) ? x : slope * x; }
};

}  // namespace stepnet
