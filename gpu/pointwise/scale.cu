// CUDA kernel for Scale. Meaning and derivative: see operators/pointwise/scale.cc.
#include "operators/pointwise/scale.h"

#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_scale {
namespace {

template <class T>
void forward(const ScaleArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const auto factor = static_cast<gpu::Accumulate<T>>(a.scale);
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = factor * x[i]; });
}

REGISTER(scale_cuda) {
  return cuda<ScaleArgs>("Scale", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_scale
