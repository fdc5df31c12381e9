// CUDA kernel for UniqueUniformFill. Meaning and derivative: see operators/fill/unique_uniform_fill.cc.
#include "operators/fill/unique_uniform_fill.h"

#include "gpu/runtime/launch.h"

namespace stepnet::gpu_unique_uniform_fill {
namespace {

// Each draw depends on all before it: it is the host that draws.
void fill(const UniqueArgs& args, Call& call) {
  Tensor& y = call.out(0);
  const Tensor avoid = call.has(1) ? copied_to(call.in(1), {}) : Tensor();
  Tensor drawn = Tensor::empty(y.dtype(), y.shape());
  draw_unique(args, call.random_key, call.has(1) ? &avoid : nullptr, drawn);
  y.copy_from(drawn);
}

REGISTER(unique_uniform_fill_cuda) { return cuda<UniqueArgs>("UniqueUniformFill", fill); }

}  // namespace
}  // namespace stepnet::gpu_unique_uniform_fill
