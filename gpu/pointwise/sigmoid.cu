// CUDA kernels for Sigmoid and SigmoidGradient. Meaning and derivative: see operators/pointwise/sigmoid.cc.
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_sigmoid {
namespace {

// exp of a negative number only, so that nothing overflows.
template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i], e = exp(v < 0 ? v : -v);
    y[i] = (v < 0 ? e : 1) / (1 + e);
  });
}

template <class T>
void gradient(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[i] * y[i] * (1 - y[i]); });
}

REGISTER(sigmoid_cuda) { return cuda("Sigmoid", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }
REGISTER(sigmoid_gradient_cuda) {
  return cuda("SigmoidGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_sigmoid
