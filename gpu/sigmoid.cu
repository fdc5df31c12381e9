// CUDA kernels for Sigmoid and SigmoidGradient. Meaning and derivative: see operators/sigmoid.cc.
#include "gpu/launch.h"

namespace stepnet::gpu_sigmoid {
namespace {

// exp of a negative number only, so that nothing overflows.
template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const T e = exp(x[i] < 0 ? x[i] : -x[i]);
    y[i] = (x[i] < 0 ? e : T{1}) / (1 + e);
  });
}

template <class T>
void gradient(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[i] * y[i] * (1 - y[i]); });
}

REGISTER(sigmoid_cuda) { return cuda("Sigmoid", forward<float>, forward<double>); }
REGISTER(sigmoid_gradient_cuda) { return cuda("SigmoidGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_sigmoid
