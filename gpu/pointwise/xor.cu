// CUDA kernel for Xor. Meaning and derivative: see operators/pointwise/xor.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_logical_xor {
namespace {

void forward(const BroadcastArgs& args, gpu::In<bool> a, gpu::In<bool> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::not_equal_to<>>(args, a, b, c, call);
}

REGISTER(logical_xor_cuda) { return cuda<BroadcastArgs>("Xor", forward); }

}  // namespace
}  // namespace stepnet::gpu_logical_xor
