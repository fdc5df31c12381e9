// CUDA kernel for Sqr. Meaning and derivative: see operators/pointwise/sqr.cc.
#include "core/tensor/half.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_sqr {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i] * x[i]; });
}

REGISTER(sqr_cuda) { return cuda("Sqr", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }

}  // namespace
}  // namespace stepnet::gpu_sqr
