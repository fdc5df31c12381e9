// CUDA kernels for Swish and SwishGradient. Meaning and derivative: see operators/pointwise/swish.cc.
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_swish {
namespace {

// exp of a negative number only, so that nothing overflows.
template <class T>
__device__ T logistic(T x) {
  const T e = exp(-fabs(x));
  return (x < 0 ? e : T(1)) / (1 + e);
}

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i];
    y[i] = v * logistic(v);
  });
}

template <class T>
void gradient(Call& call, gpu::In<T> x, const Tensor&, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i], s = logistic(v);
    dx[i] = dy[i] * s * (1 + v * (1 - s));
  });
}

REGISTER(swish_cuda) { return cuda("Swish", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }
REGISTER(swish_gradient_cuda) {
  return cuda("SwishGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_swish
