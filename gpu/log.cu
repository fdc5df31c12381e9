// CUDA kernel for Log. Meaning and derivative: see operators/log.cc.
#include "gpu/launch.h"

namespace stepnet::gpu_log {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = log(x[i]); });
}

REGISTER(log_cuda) { return cuda("Log", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_log
