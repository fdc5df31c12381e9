// CUDA kernels for Softplus and SoftplusGradient. Meaning and derivative: see operators/pointwise/softplus.cc.
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_softplus {
namespace {

// exp of a negative number only, so that nothing overflows.
template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i];
    y[i] = (v > 0 ? v : 0) + log1p(exp(-fabs(v)));
  });
}

template <class T>
void gradient(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size,
            [=] __device__(size_t i) { dx[i] = -dy[i] * expm1(-static_cast<gpu::Accumulate<T>>(y[i])); });
}

REGISTER(softplus_cuda) {
  return cuda("Softplus", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(softplus_gradient_cuda) {
  return cuda("SoftplusGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_softplus
