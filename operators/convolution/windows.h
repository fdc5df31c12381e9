// Windows that slide over the last one to three dimensions of X [N, C, ...], and the arguments of the public format
// that say which: of Conv and of the pools. The window of output o along a dimension covers the elements o * stride -
// pad + k * dilation, 0 <= k < kernel, of which those outside of X are padding. Pools may be adaptive (pool.h): there
// it covers those from floor(o * in / out) to ceil((o + 1) * in / out), without the latter. Errors: sizes that do not
// fit are Errors. Threads: pure functions.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/operator.h"

namespace stepnet {

// Each in one of three ways: a number for all dimensions, one for each of two dimensions, or a list.
struct WindowArgs {
  std::optional<int64_t> kernel, kernel_h, kernel_w, stride, stride_h, stride_w, dilation, dilation_h, dilation_w;
  std::optional<int64_t> pad, pad_t, pad_l, pad_b, pad_r;
  std::vector<int64_t> kernels, strides, dilations, pads;
  bool global_pooling = false;
  std::string order = "NCHW";
};

struct WindowAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
  bool adaptive = false;  // then kernel is the size of the largest window

  // n / in and so on; n is not negative. Kernels of a GPU have an axis that does so without dividing.
  constexpr int64_t over_in(int64_t n) const { return n / in; }
  constexpr int64_t over_out(int64_t n) const { return n / out; }
  constexpr int64_t over_stride(int64_t n) const { return n / stride; }

  constexpr int64_t place(int64_t o, int64_t k) const { return o * stride - pad + k * dilation; }
  constexpr bool inside(int64_t place) const { return place >= 0 && place < in; }
  // The outputs whose element k is inside of X are those from first(k) to last(k), without the latter.
  constexpr int64_t first(int64_t k) const { return clamped(pad - k * dilation); }
  constexpr int64_t last(int64_t k) const { return std::max(first(k), clamped(in + pad - k * dilation)); }

 private:
  // The first output o with o * stride >= from.
  constexpr int64_t clamped(int64_t from) const { return from <= 0 ? 0 : std::min((from + stride - 1) / stride, out); }
};

constexpr int kWindowDims = 3;

// Of one channel. Dimensions that X lacks stand in front, with a size of 1.
struct Windows {
  WindowAxis axis[kWindowDims];
  int64_t inputs = 1, outputs = 1, places = 1;  // elements of X, of Y and of a window

  // Whether each window is the element of X in its place.
  constexpr bool plain() const {
    bool all = true;
    for (const WindowAxis& a : axis) all = all && a.kernel == 1 && a.stride == 1 && a.in == a.out && a.pad == 0;
    return all;
  }
};

namespace windows {

constexpr int64_t kMost = int64_t{1} << 30;  // so that no sum or product of two overflows

struct Named {
  const char* name;
  const std::optional<int64_t>& value;
};

inline std::string both(const char* one, const char* other) {
  return fmt::format("has the arguments \"{}\" and \"{}\", of which only one can count", one, other);
}

// A number for each of `dims` dimensions; `fallback` where none is given.
inline std::vector<int64_t> of_each(size_t dims, const Named& all, const Named& height, const Named& width,
                                    const char* list_name, const std::vector<int64_t>& list,
                                    std::optional<int64_t> fallback) {
  const bool apart = height.value || width.value;
  require(list.empty() || !all.value, "{}", both(list_name, all.name));
  require(list.empty() || !apart, "{}", both(list_name, height.value ? height.name : width.name));
  require(!all.value || !apart, "{}", both(all.name, height.value ? height.name : width.name));
  std::vector<int64_t> found;
  if (!list.empty()) {
    require(list.size() == dims, "argument \"{}\" has {} values, but there are {} dimensions after the first two",
            list_name, list.size(), dims);
    found = list;
  } else if (apart) {
    require(dims == 2, "argument \"{}\" is for two dimensions after the first two, but there are {}; use \"{}\"",
            height.value ? height.name : width.name, dims, list_name);
    require((height.value && width.value) || fallback, "argument \"{}\" is missing",
            height.value ? width.name : height.name);
    found = {height.value.value_or(fallback.value_or(1)), width.value.value_or(fallback.value_or(1))};
  } else {
    require(all.value || fallback, "needs the argument \"{}\" or \"{}\"", all.name, list_name);
    found.assign(dims, all.value ? *all.value : *fallback);
  }
  for (const int64_t v : found) require(v >= 1 && v <= kMost, "{} is {}, but must be from 1 to {}", all.name, v, kMost);
  return found;
}

// What is added to X in front of each dimension, then what is added at each end.
inline std::vector<int64_t> pads_of(const WindowArgs& a, size_t dims) {
  const bool apart = a.pad_t || a.pad_l || a.pad_b || a.pad_r;
  require(a.pads.empty() || !a.pad, "{}", both("pads", "pad"));
  require(a.pads.empty() || !apart, "{}", both("pads", "pad_t, pad_l, pad_b or pad_r"));
  require(!a.pad || !apart, "{}", both("pad", "pad_t, pad_l, pad_b or pad_r"));
  std::vector<int64_t> found = a.pads;
  if (!found.empty()) {
    require(found.size() == 2 * dims,
            "argument \"pads\" has {} values, but {} dimensions take {}: those in front, then those at the ends",
            found.size(), dims, 2 * dims);
  } else if (apart) {
    require(dims == 2, "arguments \"pad_t\" and such are for two dimensions after the first two, but there are {}",
            dims);
    found = {a.pad_t.value_or(0), a.pad_l.value_or(0), a.pad_b.value_or(0), a.pad_r.value_or(0)};
  } else {
    found.assign(2 * dims, a.pad.value_or(0));
  }
  for (const int64_t v : found) require(v >= 0 && v <= kMost, "pad is {}, but must be from 0 to {}", v, kMost);
  return found;
}

}  // namespace windows

// Fills in the products of the axes' sizes.
inline void count_windows(Windows& w, const Shape& x) {
  for (const WindowAxis& axis : w.axis) {
    w.inputs *= axis.in;
    require(!__builtin_mul_overflow(w.outputs, axis.out, &w.outputs) &&
                !__builtin_mul_overflow(w.places, axis.kernel, &w.places),
            "X {} has more windows, or larger ones, than can be counted", x);
  }
}

// Windows over X [N, C, ...].
inline Windows windows_of(const WindowArgs& a, const Shape& x) {
  using windows::of_each;
  require(x.rank() >= 3 && x.rank() <= 2 + kWindowDims,
          "X is {}, but must be [N, C, ...] with one to {} dimensions behind", x, kWindowDims);
  const auto dims = static_cast<size_t>(x.rank() - 2);
  std::vector<int64_t> kernels;
  if (a.global_pooling) {
    require(!a.kernel && !a.kernel_h && !a.kernel_w && a.kernels.empty(),
            "has global_pooling, whose window is the whole image, and a size of windows");
    for (size_t d = 0; d < dims; ++d) kernels.push_back(x[static_cast<int>(d) + 2]);
  } else {
    kernels = of_each(dims, {"kernel", a.kernel}, {"kernel_h", a.kernel_h}, {"kernel_w", a.kernel_w}, "kernels",
                      a.kernels, {});
  }
  const auto strides =
      of_each(dims, {"stride", a.stride}, {"stride_h", a.stride_h}, {"stride_w", a.stride_w}, "strides", a.strides, 1);
  const auto dilations = of_each(dims, {"dilation", a.dilation}, {"dilation_h", a.dilation_h},
                                 {"dilation_w", a.dilation_w}, "dilations", a.dilations, 1);
  const auto pads = windows::pads_of(a, dims);
  Windows w;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t in = x[static_cast<int>(d) + 2], padded = in + pads[d] + pads[dims + d];
    const int64_t room = padded - (kernels[d] - 1) * dilations[d] - 1;
    require(
        room >= 0 && kernels[d] > 0,
        "X {} has, with padding, {} elements along dimension {}, fewer than a window of {} elements with dilation {}",
        x, padded, d + 2, kernels[d], dilations[d]);
    w.axis[kWindowDims - dims + d] = {in, room / strides[d] + 1, kernels[d], strides[d], dilations[d], pads[d]};
  }
  count_windows(w, x);
  return w;
}

// The shape of Y for X with `channels` in place of X's.
inline Shape windows_shape(const Windows& w, const Shape& x, int64_t channels) {
  Shape y{x[0], channels};
  for (int d = 2; d < x.rank(); ++d) y.push_back(w.axis[kWindowDims - x.rank() + d].out);
  return y;
}

// Declares the arguments but global_pooling and dilations.
template <class Args>
OpBuilder<Args>& add_window_args(OpBuilder<Args>& b) {
  using One = std::optional<int64_t> Args::*;
  using List = std::vector<int64_t> Args::*;
  const auto one = [&b](const char* name, std::optional<int64_t> WindowArgs::*member, const char* doc) {
    b.arg(name, static_cast<One>(member), {}, doc);
  };
  one("kernel", &WindowArgs::kernel, "elements of a window along each dimension");
  one("kernel_h", &WindowArgs::kernel_h, "the same along the first of two dimensions");
  one("kernel_w", &WindowArgs::kernel_w, "and along the second");
  b.arg("kernels", static_cast<List>(&WindowArgs::kernels), {}, "or along each of them");
  one("stride", &WindowArgs::stride, "elements from one window to the next, 1 if left out; or as for the kernel");
  one("stride_h", &WindowArgs::stride_h, "see kernel_h");
  one("stride_w", &WindowArgs::stride_w, "see kernel_w");
  b.arg("strides", static_cast<List>(&WindowArgs::strides), {}, "see kernels");
  one("pad", &WindowArgs::pad, "elements in front of and behind each dimension, 0 if left out");
  one("pad_t", &WindowArgs::pad_t, "in front of the first of two dimensions");
  one("pad_l", &WindowArgs::pad_l, "in front of the second");
  one("pad_b", &WindowArgs::pad_b, "behind the first");
  one("pad_r", &WindowArgs::pad_r, "behind the second");
  b.arg("pads", static_cast<List>(&WindowArgs::pads), {}, "in front of each dimension, then behind each");
  return b
      .arg("order", static_cast<std::string Args::*>(&WindowArgs::order), std::string("NCHW"),
           "channels are in dimension 1", one_of({"NCHW"}))
      .refuses("legacy_pad", 0, "would choose the padding by rules of old formats; pads says what it is")
      .accepts("shared_buffer", "memory for columns is taken for the time of a run")
      .accepts("deterministic", "it always is");
}

}  // namespace stepnet
