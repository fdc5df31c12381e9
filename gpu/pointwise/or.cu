// CUDA kernel for Or. Meaning and derivative: see operators/pointwise/or.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_logical_or {
namespace {

void forward(const BroadcastArgs& args, gpu::In<bool> a, gpu::In<bool> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::logical_or<>>(args, a, b, c, call);
}

REGISTER(logical_or_cuda) { return cuda<BroadcastArgs>("Or", forward); }

}  // namespace
}  // namespace stepnet::gpu_logical_or
