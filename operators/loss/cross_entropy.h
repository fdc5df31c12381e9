// What CrossEntropy and LabelCrossEntropy share: rows of probabilities, and the least that one counts as. Threads: pure
// functions.
#pragma once

#include "operators/loops/axis_rows.h"

namespace stepnet {

inline constexpr double kLeastProbability = 1e-20;

template <class T>
constexpr T bounded(T probability) {
  return probability < T(kLeastProbability) ? T(kLeastProbability) : probability;
}

// The classes are in all dimensions but the first. One dimension is one row.
inline AxisRows class_rows(const Shape& x) {
  return x.rank() == 1 ? AxisRows{1, x[0]} : AxisRows{x[0], x.size_between(1, x.rank())};
}

}  // namespace stepnet
