// The arguments and windows of MaxPool, AveragePool and their gradients; see pool.cc. Threads: pure functions. Errors:
// sizes that do not fit are Errors.
#pragma once

#include "operators/convolution/windows.h"

namespace stepnet {

struct PoolArgs : WindowArgs {
  std::optional<int64_t> output_size;
  std::vector<int64_t> output_sizes;
};

struct MaxPoolArgs : PoolArgs {};

struct AveragePoolArgs : PoolArgs {
  bool count_include_pad = false;
};

inline bool is_adaptive(const PoolArgs& a) { return a.output_size || !a.output_sizes.empty(); }

// Windows that share X [N, C, ...] out to so many outputs.
inline Windows adaptive_windows(const PoolArgs& a, const Shape& x) {
  require(x.rank() >= 3 && x.rank() <= 2 + kWindowDims,
          "X is {}, but must be [N, C, ...] with one to {} dimensions behind", x, kWindowDims);
  const bool sized = a.kernel || a.kernel_h || a.kernel_w || a.stride || a.stride_h || a.stride_w ||
                     !a.kernels.empty() || !a.strides.empty() || a.global_pooling;
  const bool padded = a.pad || a.pad_t || a.pad_l || a.pad_b || a.pad_r || !a.pads.empty();
  require(!sized && !padded, "has the size of its output, which says what its windows are, and {}",
          sized ? "a size of windows or steps" : "padding");
  const auto dims = static_cast<size_t>(x.rank() - 2);
  const auto sizes =
      windows::of_each(dims, {"output_size", a.output_size}, {"", {}}, {"", {}}, "output_sizes", a.output_sizes, {});
  Windows w;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t in = x[static_cast<int>(d) + 2], out = sizes[d];
    require(in >= 1 && in <= windows::kMost, "X {} has {} elements along dimension {}, but must have 1 to {}", x, in,
            d + 2, windows::kMost);
    w.axis[kWindowDims - dims + d] = {
        .in = in, .out = out, .kernel = std::min((in - 1) / out + 2, in), .adaptive = true};
  }
  count_windows(w, x);
  return w;
}

// Each window has an element of X.
inline Windows pool_windows(const PoolArgs& a, const Shape& x) {
  if (is_adaptive(a)) return adaptive_windows(a, x);
  const Windows w = windows_of(a, x);
  for (const WindowAxis& axis : w.axis)
    require(axis.in > 0 && axis.pad < axis.kernel && axis.place(axis.out - 1, 0) < axis.in,
            "X {} has a window of padding alone: of {} elements, the first {} of which are padding, in steps of {}", x,
            axis.kernel, axis.pad, axis.stride);
  return w;
}

// From where to where a window covers elements of X.
template <class Axis>
constexpr int64_t window_begin(const Axis& a, int64_t o) {
  return a.adaptive ? a.over_out(o * a.in) : std::max<int64_t>(a.place(o, 0), 0);
}
template <class Axis>
constexpr int64_t window_end(const Axis& a, int64_t o) {
  return a.adaptive ? a.over_out((o + 1) * a.in - 1) + 1 : std::min(a.place(o, 0) + a.kernel, a.in);
}

// Calls fn for the index of each element of X in the window of output o, which are of one channel.
template <class W, class Fn>
constexpr void each_in_window(const W& w, int64_t o, Fn fn) {
  const auto &a = w.axis[0], &b = w.axis[1], &c = w.axis[2];
  const int64_t rows = c.over_out(o), of_a = b.over_out(rows), of_b = rows - of_a * b.out, of_c = o - rows * c.out;
  const int64_t begin_b = window_begin(b, of_b), end_b = window_end(b, of_b), begin_c = window_begin(c, of_c),
                end_c = window_end(c, of_c);
  const int64_t end_a = window_end(a, of_a);
  for (int64_t i = window_begin(a, of_a); i < end_a; ++i)
    for (int64_t j = begin_b; j < end_b; ++j)
      for (int64_t k = begin_c; k < end_c; ++k) fn((i * b.in + j) * c.in + k);
}

// The outputs whose windows have an element of X are those from the first to the last, without the latter.
template <class Axis>
constexpr int64_t first_window(const Axis& a, int64_t at) {
  if (a.adaptive) return a.over_in(at * a.out);
  const int64_t behind = at + a.pad - a.kernel + 1;
  return behind <= 0 ? 0 : a.over_stride(behind + a.stride - 1);
}
template <class Axis>
constexpr int64_t last_window(const Axis& a, int64_t at) {
  return a.adaptive ? a.over_in((at + 1) * a.out - 1) + 1 : std::min(a.over_stride(at + a.pad) + 1, a.out);
}

// Calls fn for each output whose window has element i of X.
template <class W, class Fn>
constexpr void each_window_with(const W& w, int64_t i, Fn fn) {
  const auto &a = w.axis[0], &b = w.axis[1], &c = w.axis[2];
  const int64_t rows = c.over_in(i), at_a = b.over_in(rows), at_b = rows - at_a * b.in, at_c = i - rows * c.in;
  const int64_t last_a = last_window(a, at_a), first_b = first_window(b, at_b), last_b = last_window(b, at_b),
                first_c = first_window(c, at_c), last_c = last_window(c, at_c);
  for (int64_t p = first_window(a, at_a); p < last_a; ++p)
    for (int64_t q = first_b; q < last_b; ++q)
      for (int64_t r = first_c; r < last_c; ++r) fn((p * b.out + q) * c.out + r);
}

// How many elements an average is taken over: those of X in the window, or with padding all.
template <class W>
constexpr int64_t averaged(const W& w, int64_t o, bool with_padding) {
  int64_t count = 0;
  if (with_padding && !w.axis[kWindowDims - 1].adaptive) return w.places;
  each_in_window(w, o, [&count](int64_t) { ++count; });
  return count;
}

}  // namespace stepnet
