// Rows of a tensor that is flattened to a matrix before an argument `axis`. Threads: pure functions.
#pragma once

#include <algorithm>

#include "stepnet/operator.h"

namespace stepnet {

struct AxisRows {
  int64_t count = 0, size = 0;
};

template <class Args>
AxisRows rows_of(const Args& a, const Shape& x) {
  const int axis = canonical_axis(a.axis, x.rank());
  return {x.size_between(0, axis), x.size_between(axis, x.rank())};
}

// The leading dimensions of input kX that are rows.
template <class Args, int kX = 0>
int leading_rows(const Args& a, const ShapeCall& c) {
  return c.known(kX) ? canonical_axis(a.axis, c.shape(kX).rank()) : std::max(a.axis, 0);
}

}  // namespace stepnet
