// What the reductions are told, and what their elements are reduced in; see reduce_axes.h. Threads: pure functions.
#pragma once

#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "stepnet/operator.h"

namespace stepnet {

struct ReduceArgs {
  std::vector<int64_t> axes;
  bool keepdims = true;
};

// Which dimensions are reduced. Throws Error on an axis that is none, or is named twice.
inline std::array<bool, Shape::kMaxRank> reduced_dims(const ReduceArgs& args, int rank) {
  std::array<bool, Shape::kMaxRank> reduced{};
  if (args.axes.empty()) reduced.fill(true);
  for (const int64_t axis : args.axes) {
    bool& here = reduced[canonical_axis(axis, rank)];
    require(!here, "argument \"axes\" names dimension {} twice", canonical_axis(axis, rank));
    here = true;
  }
  return reduced;
}

// X's shape with 1 for the dimensions that are reduced.
inline Shape reduced_shape(const ReduceArgs& args, const Shape& x) {
  const std::array<bool, Shape::kMaxRank> reduced = reduced_dims(args, x.rank());
  Shape y;
  for (int i = 0; i < x.rank(); ++i) y.push_back(reduced[i] ? 1 : x[i]);
  return y;
}

// Stretches of floats are reduced in double.
template <class T>
using ReductionType = std::conditional_t<std::is_floating_point_v<T>, double, T>;

// What is less than all other numbers.
template <class T>
constexpr T least_value() {
  using Limits = std::numeric_limits<T>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}
template <class T>
constexpr T greatest_value() {
  using Limits = std::numeric_limits<T>;
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}

}  // namespace stepnet
