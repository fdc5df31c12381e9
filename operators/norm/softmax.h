// What Softmax, LogSoftmax and their gradients share: arguments, and the lines that are normalised, each by itself; see
// softmax.cc. Threads: pure functions.
#pragma once

#include "operators/loops/axis_rows.h"
#include "operators/loops/one_axis.h"

namespace stepnet {

struct SoftmaxArgs {
  int32_t axis = 1;
  bool single_axis = false;
};

inline OneAxis softmax_lines(const SoftmaxArgs& a, const Shape& x) {
  if (a.single_axis) return one_axis(a, x);
  const AxisRows rows = rows_of(a, x);
  return {rows.count, rows.size, 1};
}

}  // namespace stepnet
