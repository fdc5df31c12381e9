// CUDA kernel for EQ. Meaning and derivative: see operators/pointwise/eq.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_eq {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::equal_to<T>>(args, a, b, c, call);
}

REGISTER(eq_cuda) {
  return cuda<BroadcastArgs>("EQ", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>, forward<bool>);
}

}  // namespace
}  // namespace stepnet::gpu_eq
