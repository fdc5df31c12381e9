// CUDA kernel for NE. Meaning and derivative: see operators/pointwise/ne.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_ne {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::not_equal_to<T>>(args, a, b, c, call);
}

REGISTER(ne_cuda) {
  return cuda<BroadcastArgs>("NE", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>, forward<bool>);
}

}  // namespace
}  // namespace stepnet::gpu_ne
