// What CTCLoss and TransducerLoss share: logarithms of sums of probabilities, also with a derivative along a direction,
// and checks of samples. Threads: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "operators/loss/labels.h"
#include "stepnet/operator.h"

namespace stepnet {

// A number and its derivative along a direction.
struct Dual {
  double value = 0, slope = 0;
  friend constexpr Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend constexpr Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
};

constexpr double value_of(double a) { return a; }
constexpr double value_of(Dual a) { return a.value; }
// What is asked for: a gradient itself, or its derivative.
constexpr double result_of(double a) { return a; }
constexpr double result_of(Dual a) { return a.slope; }

template <class N>
constexpr N exp_of(N a) {
  const double e = std::exp(value_of(a));
  if constexpr (std::is_same_v<N, Dual>)
    return {e, e * a.slope};
  else
    return e;
}

template <class N>
constexpr N product(N a, N b) {
  if constexpr (std::is_same_v<N, Dual>)
    return {a.value * b.value, a.value * b.slope + a.slope * b.value};
  else
    return a * b;
}

template <class N>
constexpr N log_zero() {
  return N{-std::numeric_limits<double>::infinity()};
}

// Whether there is no alignment at all.
constexpr bool is_impossible(double log_total) { return log_total == -std::numeric_limits<double>::infinity(); }

// The shift that sums of exponentials are taken with: the greatest term, or 0 if there is no term but log(0).
constexpr double shift_of(double greatest) { return is_impossible(greatest) ? 0 : greatest; }

// log(sum(exp(terms))), where term(i) is one of `count`.
template <class N, class Term>
constexpr N log_sum(int64_t count, Term term) {
  double most = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < count; ++i)
    if (const double value = value_of(term(i)); value > most) most = value;
  most = shift_of(most);
  double sum = 0, slope = 0;
  for (int64_t i = 0; i < count; ++i) {
    const N each = term(i);
    const double share = std::exp(value_of(each) - most);
    sum += share;
    if constexpr (std::is_same_v<N, Dual>) slope += share * each.slope;
  }
  if constexpr (std::is_same_v<N, Dual>)
    return {most + std::log(sum), sum == 0 ? 0 : slope / sum};
  else
    return most + std::log(sum);
}

template <class N>
constexpr N log_add(N a, N b) {
  const N terms[] = {a, b};
  return log_sum<N>(2, [&terms](int64_t i) { return terms[i]; });
}
template <class N>
constexpr N log_add(N a, N b, N c) {
  const N terms[] = {a, b, c};
  return log_sum<N>(3, [&terms](int64_t i) { return terms[i]; });
}

// Scores, and how they move along a direction if N has derivatives.
template <class N, class T>
struct Scores {
  const T* at = nullptr;
  const T* direction = nullptr;

  constexpr N operator[](int64_t i) const {
    if constexpr (std::is_same_v<N, Dual>)
      return {static_cast<double>(at[i]), static_cast<double>(direction[i])};
    else
      return static_cast<double>(at[i]);
  }
  constexpr Scores from(int64_t i) const { return {at + i, direction ? direction + i : nullptr}; }
  constexpr N log_sum_of(int64_t classes) const {
    const Scores& row = *this;
    return log_sum<N>(classes, [&row](int64_t c) { return row[c]; });
  }
};

inline Shape reduced_shape(const std::string& reduction, int64_t samples) {
  return reduction == "none" ? Shape{samples} : Shape{};
}

// Throws Error unless values[b] is from `least` to `most` for each sample.
inline void check_sample_lengths(const char* name, const Wholes& values, int64_t samples, int64_t least, int64_t most) {
  for (int64_t b = 0; b < samples; ++b)
    require(values[b] >= least && values[b] <= most, "{} of sample {} is {}, but must be in {}..{}", name, b, values[b],
            least, most);
}

// Throws Error unless the labels of each sample, of which there are `lengths`, are classes other than the blank.
inline void check_sample_labels(const Wholes& labels, const Wholes& lengths, int64_t samples, int64_t places,
                                int64_t classes, int64_t blank) {
  for (int64_t b = 0; b < samples; ++b)
    for (int64_t s = 0; s < lengths[b]; ++s) {
      const int64_t label = labels[b * places + s];
      require(label >= 0 && label < classes, "the label at place {} of sample {} is {}, but must be in 0..{}", s, b,
              label, classes - 1);
      require(label != blank, "the label at place {} of sample {} is {}, which is the blank", s, b, label);
    }
}

}  // namespace stepnet
