// CUDA kernels for HardSigmoid and HardSigmoidGradient. Meaning and derivative: see
// operators/pointwise/hard_sigmoid.cc.
#include "operators/pointwise/hard_sigmoid.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_hard_sigmoid {
namespace {

template <class T>
void forward(const HardSigmoidArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, HardSigmoidValue<gpu::Accumulate<T>>{a.alpha, a.beta});
}

template <class T>
void gradient(const HardSigmoidArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, HardSigmoidSlope<gpu::Accumulate<T>>{a.alpha});
}

REGISTER(hard_sigmoid_cuda) {
  return cuda<HardSigmoidArgs>("HardSigmoid", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(hard_sigmoid_gradient_cuda) {
  return cuda<HardSigmoidArgs>("HardSigmoidGradient", gradient<float>, gradient<double>, gradient<float16>,
                               gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_hard_sigmoid
