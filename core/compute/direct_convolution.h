// Convolutions of float32 on the CPU by oneDNN's primitives, where these are faster than products of the filters and of
// columns (operators/convolution/conv.cc): where Y has few elements, or few channels that each element of X is used
// for.
//
// X is [samples, groups * channels, in...], the filters [groups * filters, channels, kernel...], Y [samples, groups *
// filters, out...], all dense. Samples are shared out to threads, or if there are few, filters or channels are; results
// repeat to the bit, and depend on the number of threads only. What a primitive works on, and what it reads and writes
// in layouts of its own, is a workspace of the allocator for the time of a call. A dry run takes as much and does
// nothing else.
//
// Each function returns false, with nothing done, if products serve better or oneDNN has only products itself.
// Threads: thread-safe; they use up to threads() threads unless serial_here(). Errors: Error if oneDNN fails.
#pragma once

#include <array>
#include <cstdint>

namespace stepnet {

// Along one dimension the window of output o covers the elements o * stride - pad + k * dilation, 0 <= k < kernel.
struct ConvolutionAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
  auto operator<=>(const ConvolutionAxis&) const = default;
};

struct ConvolutionSizes {
  int64_t samples = 0, groups = 1;
  int64_t channels = 0, filters = 0;  // of a group
  int dims = 1;                       // the last so many axes count, the others are 1
  std::array<ConvolutionAxis, 3> axes = {};
  auto operator<=>(const ConvolutionSizes&) const = default;
};

// Y; `bias`, [groups * filters], may be null.
bool convolve(const ConvolutionSizes& sizes, const float* x, const float* filter, const float* bias, float* y);
// The gradient with respect to X, or if `accumulate`, dX plus it.
bool convolve_for_data(const ConvolutionSizes& sizes, const float* filter, const float* dy, float* dx, bool accumulate);
// The same with respect to the filters.
bool convolve_for_filter(const ConvolutionSizes& sizes, const float* x, const float* dy, float* dfilter,
                         bool accumulate);

}  // namespace stepnet
