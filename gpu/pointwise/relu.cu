// CUDA kernels for Relu and ReluGradient. Meaning and derivative: see operators/pointwise/relu.cc.
#include "core/tensor/half.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_relu {
namespace {

// NaN stays NaN.
template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i] < T(0) ? T(0) : x[i]; });
}

template <class T>
void gradient(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = y[i] > T(0) ? dy[i] : T(0); });
}

REGISTER(relu_cuda) { return cuda("Relu", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }
REGISTER(relu_gradient_cuda) {
  return cuda("ReluGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_relu
