// CUDA kernel for Ger. Meaning and derivatives: see operators/products/ger.cc.
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_ger {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z) {
  gpu::each(call, z.size, [=] __device__(size_t i) { z[i] = x[i / y.size] * y[i % y.size]; });
}

REGISTER(ger_cuda) { return cuda("Ger", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_ger
