// The shapes of SumReduceLike, its gradient and MatchShape; see sum_reduce_like.cc. Threads: pure functions.
#pragma once

#include "operators/loops/broadcast.h"

namespace stepnet {

// How B is laid over A, whose shape is the result's. Throws Error if A is not B broadcast.
inline Broadcast sum_like_shapes(const BroadcastArgs& args, const Shape& a, const Shape& b) {
  const Broadcast shapes = broadcast_like(args, a, b);
  require(shapes.a == shapes.out && shapes.out.rank() == a.rank(),
          "A {} is not B {} broadcast, so it cannot be summed to it", a, b);
  return shapes;
}

}  // namespace stepnet
