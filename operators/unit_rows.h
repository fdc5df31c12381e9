// What the operators of one recurrent step, LSTMUnit and GRUUnit, share: states of N rows [..., N, D], some of which
// may belong to sequences that are over.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/operator.h"

namespace stepnet {

// Leading dimensions of 1 do not matter, so that [1, N, D] goes with [N, D].
inline Shape without_leading_ones(const Shape& shape) {
  int first = 0;
  while (first < shape.rank() - 1 && shape[first] == 1) ++first;
  return shape.from(first);
}
inline bool alike(const Shape& a, const Shape& b) { return without_leading_ones(a) == without_leading_ones(b); }

// Input i is the index of the step.
inline void check_timestep(const ShapeCall& c, int i) {
  if (!c.known(i)) return;
  const TensorType& t = c.in(i);
  require(t.dtype == DType::int32 && t.shape.size() == 1, "timestep must be one int32, but is {}", t);
}

// Input i has a length for each row of the input `name`, the states.
inline void check_lengths_fit(const ShapeCall& c, int i, std::string_view name, const Shape& states) {
  if (!c.known(i)) return;
  const int64_t rows = states.size_between(0, states.rank() - 1);
  require(c.shape(i).size() == rows, "seq_lengths must be [{}], one for each row of {} {}, but is {}", rows, name,
          states, c.shape(i));
}

// The leading dimensions of states that are rows. seq_lengths are [N], whatever stands before N.
inline int leading_rows_of(bool lengths, const Shape& states) {
  const int rows = states.rank() - 1;
  return lengths && rows != 1 ? 0 : rows;
}

// Which rows are still within their sequences.
struct Steps {
  const int32_t* lengths = nullptr;
  int32_t now = 0;
  bool valid(int64_t n) const { return !lengths || now < lengths[n]; }
};

// Inputs i and i + 1 are the lengths and the timestep. A length may be greater than the number of timesteps that are
// run.
inline Steps steps_at(const Call& call, int i) {
  const In<int32_t> lengths = call.in_span<int32_t>(i);
  for (size_t n = 0; n < lengths.size(); ++n)
    if (lengths[n] < 0) fail("seq_lengths has {} for row {}; a length is at least 0", lengths[n], n);
  return {call.in(i).data<int32_t>(), call.in(i + 1).data<int32_t>()[0]};
}

// A row of a sequence that is over: zeros, or what it was.
template <class T>
void hold_row(bool drop, int64_t d, const T* from, T* to) {
  if (!to) return;
  if (drop || !from) {
    std::fill_n(to, d, T(0));
  } else if (from != to) {
    std::copy_n(from, d, to);
  }
}

// Row n; null of a tensor that is missing or not wanted.
template <class T>
T* row_of(T* first, int64_t n, int64_t d) {
  return first ? first + n * d : nullptr;
}

}  // namespace stepnet
