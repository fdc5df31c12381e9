// CUDA kernels for LeakyRelu and LeakyReluGradient. Meaning and derivative: see operators/pointwise/leaky_relu.cc.
#include "operators/pointwise/leaky_relu.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_leaky_relu {
namespace {

template <class T>
void forward(const LeakyReluArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, LeakyReluValue<gpu::Accumulate<T>>{a.alpha});
}

template <class T>
void gradient(const LeakyReluArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, LeakyReluSlope<gpu::Accumulate<T>>{a.alpha});
}

REGISTER(leaky_relu_cuda) {
  return cuda<LeakyReluArgs>("LeakyRelu", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(leaky_relu_gradient_cuda) {
  return cuda<LeakyReluArgs>("LeakyReluGradient", gradient<float>, gradient<double>, gradient<float16>,
                             gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_leaky_relu
