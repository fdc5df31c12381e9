// CUDA kernels for Elu and EluGradient. Meaning and derivative: see operators/pointwise/elu.cc.
#include "operators/pointwise/elu.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_elu {
namespace {

template <class T>
void forward(const EluArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const auto alpha = static_cast<gpu::Accumulate<T>>(a.alpha);
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i];
    y[i] = v > 0 ? v : alpha * expm1(v);
  });
}

template <class T>
void gradient(const EluArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, EluSlope<gpu::Accumulate<T>>{a.alpha});
}

REGISTER(elu_cuda) {
  return cuda<EluArgs>("Elu", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(elu_gradient_cuda) {
  return cuda<EluArgs>("EluGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_elu
