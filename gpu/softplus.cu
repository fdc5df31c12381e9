// CUDA kernels for Softplus and SoftplusGradient. Meaning and derivative: see operators/softplus.cc.
#include "gpu/launch.h"

namespace stepnet::gpu_softplus {
namespace {

// exp of a negative number only, so that nothing overflows.
template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = (x[i] > T(0) ? x[i] : T(0)) + log1p(exp(-fabs(x[i]))); });
}

template <class T>
void gradient(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = -dy[i] * expm1(-y[i]); });
}

REGISTER(softplus_cuda) { return cuda("Softplus", forward<float>, forward<double>); }
REGISTER(softplus_gradient_cuda) { return cuda("SoftplusGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_softplus
