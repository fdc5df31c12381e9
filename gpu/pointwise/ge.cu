// CUDA kernel for GE. Meaning and derivative: see operators/pointwise/ge.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_ge {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::greater_equal<T>>(args, a, b, c, call);
}

REGISTER(ge_cuda) {
  return cuda<BroadcastArgs>("GE", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_ge
