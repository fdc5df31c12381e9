// CUDA kernel for Not. Meaning and derivative: see operators/pointwise/not.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_logical_not {
namespace {

void forward(Call& call, gpu::In<bool> x, gpu::Out<bool> y) { gpu::map(call, x, y, std::logical_not<bool>()); }

REGISTER(logical_not_cuda) { return cuda("Not", forward); }

}  // namespace
}  // namespace stepnet::gpu_logical_not
