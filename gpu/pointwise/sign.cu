// CUDA kernel for Sign. Meaning and derivative: see operators/pointwise/sign.cc.
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_sign {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = static_cast<T>((x[i] > T(0)) - (x[i] < T(0))); });
}

REGISTER(sign_cuda) { return cuda("Sign", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>); }

}  // namespace
}  // namespace stepnet::gpu_sign
