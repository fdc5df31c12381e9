// CUDA kernel for LE. Meaning and derivative: see operators/pointwise/le.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_le {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::less_equal<T>>(args, a, b, c, call);
}

REGISTER(le_cuda) {
  return cuda<BroadcastArgs>("LE", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_le
