// CUDA kernel for Log. Meaning and derivative: see operators/pointwise/log.cc.
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_log {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = log(static_cast<gpu::Accumulate<T>>(x[i])); });
}

REGISTER(log_cuda) { return cuda("Log", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }

}  // namespace
}  // namespace stepnet::gpu_log
