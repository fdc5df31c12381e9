// CUDA kernels for Elu and EluGradient. Meaning and derivative: see operators/elu.cc.
#include "operators/elu.h"

#include "gpu/elementwise.h"

namespace stepnet::gpu_elu {
namespace {

template <class T>
void forward(const EluArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const T alpha = static_cast<T>(a.alpha);
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i] > T(0) ? x[i] : alpha * expm1(x[i]); });
}

template <class T>
void gradient(const EluArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, EluSlope<T>{static_cast<T>(a.alpha)});
}

REGISTER(elu_cuda) { return cuda<EluArgs>("Elu", forward<float>, forward<double>); }
REGISTER(elu_gradient_cuda) { return cuda<EluArgs>("EluGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_elu
