// CUDA kernel for Exp. Meaning and derivative: see operators/pointwise/exp.cc.
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_exp {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = exp(static_cast<gpu::Accumulate<T>>(x[i])); });
}

REGISTER(exp_cuda) { return cuda("Exp", forward<float>, forward<double>, forward<float16>, forward<bfloat16>); }

}  // namespace
}  // namespace stepnet::gpu_exp
