// One dimension of a tensor, `axis`, among all others: what runs along it is a line of `size` elements, `inner` apart.
// Threads: pure functions.
#pragma once

#include "core/compute/threads.h"
#include "stepnet/operator.h"

namespace stepnet {

struct OneAxis {
  int64_t outer = 1, size = 1, inner = 1;  // sizes of what comes before the axis, of itself, and behind it

  constexpr int64_t lines() const { return outer * inner; }
  constexpr int64_t first(int64_t line) const { return line / inner * size * inner + line % inner; }

  // Calls fn(line, first) for each line, where `first` is the place of its first element. fn must not throw.
  template <class Fn>
  void each_line(double cost_per_element, Fn fn) const {
    auto range = [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) fn(line, first(line));
    };
    parallel_for(lines(), 2.0 + cost_per_element * static_cast<double>(size), range);
  }
};

template <class Args>
OneAxis one_axis(const Args& a, const Shape& x) {
  const int axis = canonical_axis(a.axis, x.rank());
  return {x.size_between(0, axis), x[axis], x.size_between(axis + 1, x.rank())};
}

// The dimensions of input kX before the axis.
template <class Args, int kX = 0>
int rows_before_axis(const Args& a, const ShapeCall& c) {
  return c.known(kX) ? canonical_axis(a.axis, c.shape(kX).rank()) : 0;
}

}  // namespace stepnet
