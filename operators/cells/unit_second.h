// What the second derivatives of LSTMUnit and GRUUnit share: inputs 1 to 3, which are the gates, seq_lengths and
// timestep, activations with two derivatives, and tensors that may be missing. Threads: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "operators/cells/unit_rows.h"

namespace stepnet {

// Where the inputs stand after the states.
constexpr int kGates = 1, kLengths = 2, kTimestep = 3;

// `state` is input 0, and `times` how many gates each state has.
template <class Args>
OpBuilder<Args>& declare_second_inputs(OpBuilder<Args>& b, const std::string& unit, const std::string& state,
                                       int times) {
  const std::string lengths = unit + "'s, if sequence_lengths is 1";
  return b.input(state, unit + "'s, [..., N, D]")
      .input("gates", fmt::format("{}'s, [..., N, {}D]", unit, times))
      .input("seq_lengths", lengths)
      .types({DType::int32})
      .optional()
      .input("timestep", lengths)
      .types({DType::int32})
      .optional();
}

// seq_lengths and timestep may be without names, but only both and where nothing asks for them.
inline void check_second_lengths(const UnitArgs& a, const ShapeCall& c) {
  require(a.sequence_lengths == c.has(kLengths) && a.sequence_lengths == c.has(kTimestep),
          "seq_lengths and timestep must be given where sequence_lengths is 1, and only there; it is {}",
          int{a.sequence_lengths});
}

// An activation with its derivatives, for second derivatives.
template <class T>
struct Curve {
  T value, slope, bend;  // the function, its first and its second derivative
};

template <class T>
constexpr Curve<T> sigmoid_curve(T x) {
  const T s = T(1) / (T(1) + std::exp(-x)), slope = s * (T(1) - s);
  return {s, slope, slope * (T(1) - 2 * s)};
}

template <class T>
constexpr Curve<T> tanh_curve(T x) {
  const T t = std::tanh(x), slope = T(1) - t * t;
  return {t, slope, -2 * t * slope};
}

// Element j; zero of what is missing.
template <class T>
constexpr T value_at(const T* values, int64_t j) {
  return values ? values[j] : T(0);
}

// What is not wanted has no place.
template <class T>
constexpr void put(T* values, int64_t j, T value) {
  if (values) values[j] = value;
}

}  // namespace stepnet
