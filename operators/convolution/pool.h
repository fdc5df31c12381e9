// The arguments and windows of MaxPool, AveragePool and their gradients; see pool.cc. Threads: pure functions.
#pragma once

#include "operators/convolution/windows.h"

namespace stepnet {

struct MaxPoolArgs : WindowArgs {};

struct AveragePoolArgs : WindowArgs {
  bool count_include_pad = false;
};

// Each window has an element of X.
inline Windows pool_windows(const WindowArgs& a, const Shape& x) {
  const Windows w = windows_of(a, x);
  for (const WindowAxis& axis : w.axis)
    require(axis.in > 0 && axis.pad < axis.kernel && axis.place(axis.out - 1, 0) < axis.in,
            "X {} has a window of padding alone: of {} elements, the first {} of which are padding, in steps of {}", x,
            axis.kernel, axis.pad, axis.stride);
  return w;
}

// Calls fn for the index of each element of X in the window of output o, which are of one channel.
template <class Fn>
constexpr void each_in_window(const Windows& w, int64_t o, Fn fn) {
  const WindowAxis &a = w.axis[0], &b = w.axis[1], &c = w.axis[2];
  const int64_t at_c = c.place(o % c.out, 0), at_b = b.place(o / c.out % b.out, 0),
                at_a = a.place(o / c.out / b.out, 0);
  for (int64_t i = std::max<int64_t>(at_a, 0); i < std::min(at_a + a.kernel, a.in); ++i)
    for (int64_t j = std::max<int64_t>(at_b, 0); j < std::min(at_b + b.kernel, b.in); ++j)
      for (int64_t k = std::max<int64_t>(at_c, 0); k < std::min(at_c + c.kernel, c.in); ++k)
        fn((i * b.in + j) * c.in + k);
}

// Calls fn for each output whose window has element i of X.
template <class Fn>
constexpr void each_window_with(const Windows& w, int64_t i, Fn fn) {
  const auto from = [](const WindowAxis& x, int64_t at) {
    const int64_t behind = at + x.pad - x.kernel + 1;
    return behind <= 0 ? 0 : (behind + x.stride - 1) / x.stride;
  };
  const auto to = [](const WindowAxis& x, int64_t at) { return std::min((at + x.pad) / x.stride + 1, x.out); };
  const WindowAxis &a = w.axis[0], &b = w.axis[1], &c = w.axis[2];
  const int64_t at_c = i % c.in, at_b = i / c.in % b.in, at_a = i / c.in / b.in;
  for (int64_t p = from(a, at_a); p < to(a, at_a); ++p)
    for (int64_t q = from(b, at_b); q < to(b, at_b); ++q)
      for (int64_t r = from(c, at_c); r < to(c, at_c); ++r) fn((p * b.out + q) * c.out + r);
}

// How many elements an average is taken over: those of X in the window, or with padding all.
constexpr int64_t averaged(const Windows& w, int64_t o, bool with_padding) {
  int64_t count = 0;
  if (with_padding) return w.places;
  each_in_window(w, o, [&count](int64_t) { ++count; });
  return count;
}

}  // namespace stepnet
