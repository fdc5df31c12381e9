// CUDA kernel for NanCheck. Meaning and derivative: see operators/control/nan_check.cc.
#include "gpu/loops/total.h"

namespace stepnet::gpu_nan_check {
namespace {

// The kernel goes on; what it found is an error where the host waits.
template <class T>
void check_and_copy(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  const gpu::Bounds bounds = gpu::bounds(call, "the place of the first element that is NaN or infinite");
  const size_t none = x.size;
  gpu::total(
      call, x.size, none, [=] __device__(size_t i) { return isfinite(x[i]) ? none : i; },
      [] __device__(size_t a, size_t b) { return a < b ? a : b; },
      [=] __device__(size_t first) {
        if (first < none) bounds.report(static_cast<int64_t>(first), gpu::kNoLimit);
      });
  if (y.data != x.data) gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i]; });
}

REGISTER(nan_check_cuda) { return cuda("NanCheck", check_and_copy<float>, check_and_copy<double>); }

}  // namespace
}  // namespace stepnet::gpu_nan_check
