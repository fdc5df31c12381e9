// CUDA kernel for Reshape. Meaning and derivative: see operators/shape/reshape.cc.
#include "gpu/loops/copy_elements.h"
#include "gpu/loops/write_integers.h"

namespace stepnet::gpu_reshape {
namespace {

void reshape(Call& call) {
  const Shape old_shape = call.in(0).shape();
  if (call.wants(0)) copy_values(call.in(0), call.out(0));
  if (call.wants(1)) gpu::write_integers(call, call.out(1), 0, old_shape.dims(), "the old size");
}

REGISTER(reshape_cuda) { return cuda("Reshape", reshape); }

}  // namespace
}  // namespace stepnet::gpu_reshape
