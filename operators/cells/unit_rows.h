// What the operators of one recurrent step, LSTMUnit and GRUUnit, share: states of N rows [..., N, D], some of which
// may belong to sequences that are over, and the arguments and inputs that say which.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/compute/half_spans.h"
#include "core/compute/threads.h"
#include "stepnet/operator.h"

namespace stepnet {

struct UnitArgs {
  bool drop_states = false;
  bool sequence_lengths = true;
};

// `Args` derives from UnitArgs.
template <class Args>
OpBuilder<Args>& declare_unit_args(OpBuilder<Args>& b) {
  return b
      .arg("drop_states", static_cast<bool Args::*>(&UnitArgs::drop_states), false,
           "rows past their length get zeros instead of keeping states")
      .arg("sequence_lengths", static_cast<bool Args::*>(&UnitArgs::sequence_lengths), true,
           "whether there is an input seq_lengths");
}

// `inputs`: how many there are with seq_lengths.
inline void check_unit_inputs(const UnitArgs& a, const ShapeCall& c, int inputs) {
  const int expected = a.sequence_lengths ? inputs : inputs - 1;
  require(c.inputs() == expected, "with sequence_lengths: {} it takes {} inputs, but has {}", int{a.sequence_lengths},
          expected, c.inputs());
}

// Leading dimensions of 1 do not matter, so that [1, N, D] goes with [N, D].
inline Shape without_leading_ones(const Shape& shape) {
  int first = 0;
  while (first < shape.rank() - 1 && shape[first] == 1) ++first;
  return shape.from(first);
}
inline bool alike(const Shape& a, const Shape& b) { return without_leading_ones(a) == without_leading_ones(b); }

// A gradient operator may be given inputs without names, which it reads nevertheless.
inline void require_input(const ShapeCall& c, int i, std::string_view name) {
  require(c.has(i), "{}, input {}, is missing", name, i);
}

// Inputs i and `like`, where both are known.
inline void check_alike(const ShapeCall& c, int i, std::string_view name, int like, std::string_view like_name) {
  if (!c.known(i) || !c.known(like)) return;
  require(alike(c.shape(i), c.shape(like)), "{} must be {} as {} is, but is {}", name, c.shape(like), like_name,
          c.shape(i));
}

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

// Input i are gates, `times` the states of the shape `states` of the input `name`.
inline void check_gates(const ShapeCall& c, int i, std::string_view name, const Shape& states, int times,
                        std::string_view times_in_words) {
  require(states.rank() >= 1, "{} must be [..., N, D], but is a scalar", name);
  const int64_t size = states.at(-1);
  const Shape gates = states.with(states.rank() - 1, times * size);
  if (c.known(i))
    require(alike(c.shape(i), gates), "gates must be {}, {} times the {} states of {} {}, but is {}", gates,
            times_in_words, size, name, states, c.shape(i));
}

// Inputs i to i + 2 are the states that others are compared with, gates, and seq_lengths or timestep. Gates are `times`
// the states.
inline void check_unit_states(const UnitArgs& a, const ShapeCall& c, int i, std::string_view name, int times,
                              std::string_view times_in_words) {
  require_input(c, i, name);
  require_input(c, i + 1, "gates");
  check_timestep(c, i + (a.sequence_lengths ? 3 : 2));
  if (!c.known(i)) return;
  check_gates(c, i + 1, name, c.shape(i), times, times_in_words);
  if (a.sequence_lengths) check_lengths_fit(c, i + 2, name, c.shape(i));
}

// The leading dimensions of the states, input i, that are rows. seq_lengths are [N], whatever stands before N.
inline int unit_leading_rows(const UnitArgs& a, const ShapeCall& c, int i) {
  if (!c.known(i)) return 0;
  const int rows = c.shape(i).rank() - 1;
  return a.sequence_lengths && rows != 1 ? 0 : rows;
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

// The rows of the states, which are input i. `lengths`: the input that they are, if there are any; the timestep is the
// next one.
struct UnitRows {
  int64_t count, d;
  Steps steps;

  UnitRows(const UnitArgs& a, const Call& call, int i, int lengths)
      : count(call.in(i).shape().size_between(0, call.in(i).rank() - 1)), d(call.in(i).shape().at(-1)) {
    if (a.sequence_lengths) steps = steps_at(call, lengths);
  }
  UnitRows(const UnitArgs& a, const Call& call, int i) : UnitRows(a, call, i, i + 2) {}

  // Calls valid(n) for each row that is within its sequence, over(n) for the others; threads share them out.
  template <class Valid, class Over>
  void each(double nanoseconds, const Valid& valid, const Over& over) const {
    auto range = [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        if (steps.valid(n)) {
          valid(n);
        } else {
          over(n);
        }
      }
    };
    parallel_for(count, nanoseconds, std::ref(range));
  }
};

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

// Row n of some tensors of T as what is computed with: of halves, floats in a buffer of the thread. Rows that are
// written become halves when this ends, after all are read. Of float and double, the rows themselves.
template <class T>
class ComputedRows {
 public:
  static constexpr bool kConverts = is_half(dtype_of<T>());
  using Number = std::conditional_t<kConverts, float, T>;

  // `elements`: of all rows that are asked for.
  ComputedRows(int64_t n, int64_t elements) : n_(n) {
    if (kConverts) next_ = thread_buffer<Number>(ThreadBuffer::line, static_cast<size_t>(elements)).data();
  }
  ~ComputedRows() {
    for (int i = 0; i < written_; ++i)
      if constexpr (kConverts) convert_elements(rows_[i].from, rows_[i].size, rows_[i].to);
  }
  ComputedRows(const ComputedRows&) = delete;
  ComputedRows& operator=(const ComputedRows&) = delete;

  const Number* read(const T* first, int64_t d) {
    if (!first) return nullptr;
    if constexpr (kConverts) {
      convert_elements(first + n_ * d, d, next_);
      return std::exchange(next_, next_ + d);
    } else {
      return first + n_ * d;
    }
  }
  Number* write(T* first, int64_t d) {
    if (!first) return nullptr;
    if constexpr (kConverts) {
      rows_[written_++] = {next_, d, first + n_ * d};
      return std::exchange(next_, next_ + d);
    } else {
      return first + n_ * d;
    }
  }

 private:
  static constexpr int kMostWritten = 3;
  struct Row {
    const Number* from;
    int64_t size;
    T* to;
  };
  int64_t n_;
  Number* next_ = nullptr;
  Row rows_[kMostWritten];
  int written_ = 0;
};

}  // namespace stepnet
