// CUDA kernels for Softsign and SoftsignGradient. Meaning and derivative: see operators/pointwise/softsign.cc.
#include "operators/pointwise/softsign.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_softsign {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::map(call, x, y, SoftsignValue<gpu::Accumulate<T>>());
}

template <class T>
void gradient(Call& call, gpu::In<T> x, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::map(call, x, dy, dx, SoftsignSlope<gpu::Accumulate<T>>());
}

REGISTER(softsign_cuda) {
  return cuda("Softsign", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(softsign_gradient_cuda) {
  return cuda("SoftsignGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_softsign
