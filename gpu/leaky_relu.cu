// CUDA kernels for LeakyRelu and LeakyReluGradient. Meaning and derivative: see operators/leaky_relu.cc.
#include "operators/leaky_relu.h"

#include "gpu/elementwise.h"

namespace stepnet::gpu_leaky_relu {
namespace {

template <class T>
void forward(const LeakyReluArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, LeakyReluValue<T>{static_cast<T>(a.alpha)});
}

template <class T>
void gradient(const LeakyReluArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, LeakyReluSlope<T>{static_cast<T>(a.alpha)});
}

REGISTER(leaky_relu_cuda) { return cuda<LeakyReluArgs>("LeakyRelu", forward<float>, forward<double>); }
REGISTER(leaky_relu_gradient_cuda) {
  return cuda<LeakyReluArgs>("LeakyReluGradient", gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_leaky_relu
