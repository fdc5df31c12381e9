// CUDA kernels for Abs and AbsGradient. Meaning and derivative: see operators/pointwise/abs.cc.
#include "operators/pointwise/unary.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_abs {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = fabs(static_cast<gpu::Accumulate<T>>(x[i])); });
}

template <class T>
void gradient(Call& call, gpu::In<T> x, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::map(call, x, dy, dx, AbsSlope<gpu::Accumulate<T>>());
}

REGISTER(abs_cuda) { return cuda("Abs", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }
REGISTER(abs_gradient_cuda) {
  return cuda("AbsGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_abs
