// CUDA kernel for Mul. Meaning and derivative: see operators/pointwise/mul.cc.
#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_mul {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::binary<std::multiplies<gpu::Accumulate<T>>>(args, a, b, c, call);
}

REGISTER(mul_cuda) {
  return cuda<BroadcastArgs>("Mul", forward<float>, forward<double>, forward<float16>, forward<bfloat16>,
                             forward<int32_t>, forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_mul
