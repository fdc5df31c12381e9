// CUDA kernel for LT. Meaning and derivative: see operators/pointwise/lt.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_lt {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::less<T>>(args, a, b, c, call);
}

REGISTER(lt_cuda) {
  return cuda<BroadcastArgs>("LT", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_lt
