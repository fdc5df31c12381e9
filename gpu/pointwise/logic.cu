// CUDA kernels for And, Or, Xor and Not. Meaning: see operators/pointwise/logic.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_logic {
namespace {

template <class Op>
void forward(const BroadcastArgs& args, gpu::In<bool> a, gpu::In<bool> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<Op>(args, a, b, c, call);
}

REGISTER(logical_and_cuda) { return cuda<BroadcastArgs>("And", forward<std::logical_and<>>); }
REGISTER(logical_or_cuda) { return cuda<BroadcastArgs>("Or", forward<std::logical_or<>>); }
REGISTER(logical_xor_cuda) { return cuda<BroadcastArgs>("Xor", forward<std::not_equal_to<>>); }

void forward_not(Call& call, gpu::In<bool> x, gpu::Out<bool> y) { gpu::map(call, x, y, std::logical_not<bool>()); }

REGISTER(logical_not_cuda) { return cuda("Not", forward_not); }

}  // namespace
}  // namespace stepnet::gpu_logic
