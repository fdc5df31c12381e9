// CUDA kernels for Softsign and SoftsignGradient. Meaning and derivative: see operators/softsign.cc.
#include "operators/softsign.h"

#include "gpu/elementwise.h"

namespace stepnet::gpu_softsign {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::map(call, x, y, SoftsignValue<T>());
}

template <class T>
void gradient(Call& call, gpu::In<T> x, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::map(call, x, dy, dx, SoftsignSlope<T>());
}

REGISTER(softsign_cuda) { return cuda("Softsign", forward<float>, forward<double>); }
REGISTER(softsign_gradient_cuda) { return cuda("SoftsignGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_softsign
