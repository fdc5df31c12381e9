// A bit for each element, in place of a value that a derivative would only compare: ClipWithBits and SelectByBits (see
// operators/pointwise/bits.cc). Bit i % 8 of byte i / 8 is that of element i; those behind the last element are 0.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>

#include "stepnet/shape.h"

namespace stepnet {

constexpr int64_t bytes_of_bits(int64_t bits) { return (bits + 7) / 8; }

// Calls fn(i) for the elements whose bits are in byte `at`.
template <class Fn>
constexpr void each_of_byte(int64_t at, int64_t size, const Fn& fn) {
  for (int64_t i = 8 * at, end = i + 8 < size ? i + 8 : size; i < end; ++i) fn(i);
}

struct ClipWithBitsArgs {
  float min = -std::numeric_limits<float>::infinity(), max = std::numeric_limits<float>::infinity();
  float alpha = 0;
};

// As Clip, or with an alpha as LeakyRelu, to the bit.
template <class T>
struct ClipWithBits {
  T least, most, alpha;
  constexpr T value(T x) const {
    if (alpha != T(0)) return x > least ? x : alpha * x;
    return x < least ? least : x > most ? most : x;
  }
  // No bound is above infinity.
  constexpr bool is_within(T x) const { return x > least && (x < most || most == std::numeric_limits<T>::infinity()); }
};

struct SelectByBitsArgs {
  float alpha = 0, ratio = 0;
};

// As the gradients of Relu, Clip, LeakyRelu and Dropout, to the bit.
template <class T>
struct SelectByBits {
  T alpha, scale;
  constexpr T operator()(bool bit, T x) const { return bit ? x * scale : alpha != T(0) ? alpha * x : T(0); }
};

}  // namespace stepnet
