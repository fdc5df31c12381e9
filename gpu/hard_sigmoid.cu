// CUDA kernels for HardSigmoid and HardSigmoidGradient. Meaning and derivative: see operators/hard_sigmoid.cc.
#include "operators/hard_sigmoid.h"

#include "gpu/elementwise.h"

namespace stepnet::gpu_hard_sigmoid {
namespace {

template <class T>
void forward(const HardSigmoidArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, HardSigmoidValue<T>{static_cast<T>(a.alpha), static_cast<T>(a.beta)});
}

template <class T>
void gradient(const HardSigmoidArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, HardSigmoidSlope<T>{static_cast<T>(a.alpha)});
}

REGISTER(hard_sigmoid_cuda) { return cuda<HardSigmoidArgs>("HardSigmoid", forward<float>, forward<double>); }
REGISTER(hard_sigmoid_gradient_cuda) {
  return cuda<HardSigmoidArgs>("HardSigmoidGradient", gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_hard_sigmoid
