// CUDA kernels for Gelu and GeluGradient. Meaning and derivative: see operators/gelu.cc.
#include "operators/gelu.h"

#include "gpu/elementwise.h"

namespace stepnet::gpu_gelu {
namespace {

template <class T>
void forward(const GeluArgs&, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, GeluValue<T>());
}

template <class T>
void gradient(const GeluArgs&, gpu::In<T> dy, gpu::In<T> x, gpu::Out<T> dx, Call& call) {
  gpu::map(call, dy, x, dx, GeluSlope<T>());
}

REGISTER(gelu_cuda) { return cuda<GeluArgs>("Gelu", forward<float>, forward<double>); }
REGISTER(gelu_gradient_cuda) { return cuda<GeluArgs>("GeluGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_gelu
