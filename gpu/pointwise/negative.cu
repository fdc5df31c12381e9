// CUDA kernel for Negative. Meaning and derivative: see operators/pointwise/negative.cc.
#include "core/tensor/half.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_negative {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = -x[i]; });
}

REGISTER(negative_cuda) {
  return cuda("Negative", forward<float>, forward<double>, forward<float16>, forward<bfloat16>, forward<int32_t>,
              forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_negative
