// CUDA kernel for And. Meaning and derivative: see operators/pointwise/and.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_logical_and {
namespace {

void forward(const BroadcastArgs& args, gpu::In<bool> a, gpu::In<bool> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::logical_and<>>(args, a, b, c, call);
}

REGISTER(logical_and_cuda) { return cuda<BroadcastArgs>("And", forward); }

}  // namespace
}  // namespace stepnet::gpu_logical_and
