// CUDA kernel for Sqrt. Meaning and derivative: see operators/pointwise/sqrt.cc.
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_sqrt {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = sqrt(static_cast<gpu::Accumulate<T>>(x[i])); });
}

REGISTER(sqrt_cuda) { return cuda("Sqrt", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }

}  // namespace
}  // namespace stepnet::gpu_sqrt
