// CUDA kernels for Tanh and TanhGradient. Meaning and derivative: see operators/pointwise/tanh.cc.
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_tanh {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = tanh(static_cast<gpu::Accumulate<T>>(x[i])); });
}

template <class T>
void gradient(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[i] * (1 - y[i] * y[i]); });
}

REGISTER(tanh_cuda) { return cuda("Tanh", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }
REGISTER(tanh_gradient_cuda) {
  return cuda("TanhGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_tanh
