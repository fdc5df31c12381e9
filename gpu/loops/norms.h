// Normalisations that a library of the device's runs, below gpu/norm/batch_norm.cu, gpu/norm/softmax.cu and
// gpu/norm/log_softmax.cu: cuDNN. Where it is not installed, where it is not asked, and for what it cannot do, the
// kernels of these files run.
//
// Addresses are on the device, of elements of `dtype`; none is null unless it says so, and no output is an input. Work
// is queued on the current stream. A run returns false, and has done nothing, if the library refuses these sizes.
// Errors: what goes wrong otherwise is an Error with the library's words. Threads: may be called from several threads.
#pragma once

#include <cstdint>
#include <optional>

#include "stepnet/shape.h"

namespace stepnet::gpu {

// For tests and comparisons: whether the library is asked at all. It is at first.
void use_vendor_norms(bool use);

// What the library can say without being asked to run.
struct VendorNorms {
  bool there = false;         // it can be loaded
  double least_epsilon = 0;   // of BatchNorm
  int64_t most_elements = 0;  // of a tensor
};
const VendorNorms& vendor_norms();

// X is `outer` blocks of `count` channels of `inner` elements each, float32 or float64.
struct VendorChannels {
  DType dtype = DType::float32;
  int64_t outer = 1, count = 1, inner = 1;
  double epsilon = 0;
};
enum class NormRun { training, evaluation };
// Whether the library is to be asked for these.
bool vendor_takes(const VendorChannels& channels, NormRun run);

// Bytes of memory that a training run and its backward run work on; nothing if the library would have to hand anything
// but the statistics from one to the other.
std::optional<size_t> vendor_norm_workspace(int device, const VendorChannels& channels, bool backward);

// One number for each channel: of the batch, and of the parameters.
struct VendorStatistics {
  void *mean = nullptr, *variance = nullptr;             // hold zeros; the variance is the sum divided by m - 1
  void *saved_mean = nullptr, *saved_inverse = nullptr;  // 1 / sqrt(variance divided by m + epsilon)
};
bool run_vendor_norm(int device, const VendorChannels& channels, const void* x, const void* scale, const void* bias,
                     void* y, const VendorStatistics& out, void* workspace, size_t bytes);
bool run_vendor_norm_evaluation(int device, const VendorChannels& channels, const void* x, const void* scale,
                                const void* bias, const void* mean, const void* variance, void* y);

struct VendorNormGradients {
  void *dx = nullptr, *dscale = nullptr, *dbias = nullptr;
};
bool run_vendor_norm_backward(int device, const VendorChannels& channels, const void* x, const void* scale,
                              const void* dy, const void* saved_mean, const void* saved_inverse,
                              const VendorNormGradients& out, void* workspace, size_t bytes);

// `count` rows of `size` elements, float32 or float64; with `log`, logarithms of probabilities.
struct VendorRows {
  DType dtype = DType::float32;
  int64_t count = 0, size = 0;
  bool log = false;
};
bool vendor_takes(const VendorRows& rows);
bool run_vendor_softmax(int device, const VendorRows& rows, const void* x, void* y);
// dx may be dy.
bool run_vendor_softmax_backward(int device, const VendorRows& rows, const void* y, const void* dy, void* dx);

}  // namespace stepnet::gpu
