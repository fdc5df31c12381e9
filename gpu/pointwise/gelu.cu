// CUDA kernels for Gelu and GeluGradient. Meaning and derivative: see operators/pointwise/gelu.cc.
#include "operators/pointwise/gelu.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_gelu {
namespace {

template <class T>
void forward(const GeluArgs&, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, GeluValue<gpu::Accumulate<T>>());
}

template <class T>
void gradient(const GeluArgs&, gpu::In<T> dy, gpu::In<T> x, gpu::Out<T> dx, Call& call) {
  gpu::map(call, dy, x, dx, GeluSlope<gpu::Accumulate<T>>());
}

REGISTER(gelu_cuda) {
  return cuda<GeluArgs>("Gelu", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(gelu_gradient_cuda) {
  return cuda<GeluArgs>("GeluGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_gelu
