// CUDA kernel for Div. Meaning and derivative: see operators/pointwise/div.cc.
#include "operators/pointwise/div.h"

#include "gpu/loops/division.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_div {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::divide<Quotient<gpu::Accumulate<T>>>(args, a, b, c, call);
}

REGISTER(div_cuda) {
  return cuda<BroadcastArgs>("Div", forward<float>, forward<double>, forward<float16>, forward<bfloat16>,
                             forward<int32_t>, forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_div
