// What operators on the outer product of two vectors share: its shape and its elements. Threads: pure functions.
#pragma once

#include <functional>
#include <optional>

#include "core/compute/threads.h"
#include "core/operator/operator.h"

namespace stepnet {

// The shape of X Y^T, where X is input kX and Y the next; nothing if it is not known yet.
template <int kX>
std::optional<Shape> outer_product(const ShapeCall& c) {
  for (const int i : {kX, kX + 1})
    if (c.known(i))
      require(c.shape(i).rank() == 1, "{} is {}, but a vector has one dimension", i == kX ? "X" : "Y", c.shape(i));
  if (!c.known(kX) || !c.known(kX + 1)) return std::nullopt;
  return Shape{c.shape(kX)[0], c.shape(kX + 1)[0]};
}

// Calls fn(place, x[i] y[j]) for every element of the product. fn must not throw.
template <class T, class Fn>
void each_product(In<T> x, In<T> y, const Fn& fn) {
  const auto columns = static_cast<int64_t>(y.size());
  auto range = [=, &fn](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < columns; ++j) fn(i * columns + j, x[i] * y[j]);
  };
  parallel_for(static_cast<int64_t>(x.size()), 0.4 * static_cast<double>(columns), std::ref(range));
}

}  // namespace stepnet
