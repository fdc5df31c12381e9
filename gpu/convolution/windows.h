// Windows for kernels, which divide by the sizes that are in them as gpu/runtime/divider.h does: without dividing.
// Threads: pure functions.
#pragma once

#include "gpu/runtime/divider.h"
#include "operators/convolution/windows.h"

namespace stepnet::gpu {

// n / divisor; n is not negative.
constexpr int64_t divided(int64_t n, const Divider& divisor) {
  return static_cast<int64_t>(divisor.divide(static_cast<size_t>(n)));
}

struct DividingAxis : WindowAxis {
  Divider by_in, by_out, by_stride;

  DividingAxis() = default;
  explicit DividingAxis(const WindowAxis& a)
      : WindowAxis(a),
        by_in(static_cast<size_t>(a.in)),
        by_out(static_cast<size_t>(a.out)),
        by_stride(static_cast<size_t>(a.stride)) {}

  constexpr int64_t over_in(int64_t n) const { return divided(n, by_in); }
  constexpr int64_t over_out(int64_t n) const { return divided(n, by_out); }
  constexpr int64_t over_stride(int64_t n) const { return divided(n, by_stride); }
};

struct DividingWindows {
  DividingAxis axis[kWindowDims];
  int64_t inputs = 1, outputs = 1, places = 1;

  explicit DividingWindows(const Windows& w) : inputs(w.inputs), outputs(w.outputs), places(w.places) {
    for (int d = 0; d < kWindowDims; ++d) axis[d] = DividingAxis(w.axis[d]);
  }
};

}  // namespace stepnet::gpu
