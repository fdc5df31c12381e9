// CUDA kernels for the operators of operators/shape/reshape.cc, where their meaning and derivatives stand.
#include "gpu/loops/copy_elements.h"
#include "gpu/loops/write_integers.h"

namespace stepnet::gpu_reshape {
namespace {

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

void reshape(Call& call) {
  const Shape old_shape = call.in(0).shape();
  if (call.wants(0)) copy_values(call.in(0), call.out(0));
  if (call.wants(1)) gpu::write_integers(call, call.out(1), 0, old_shape.dims(), "the old size");
}

REGISTER(reshape_cuda) { return cuda("Reshape", reshape); }

REGISTER(flatten_cuda) { return cuda("Flatten", copy); }
REGISTER(flatten_to_vec_cuda) { return cuda("FlattenToVec", copy); }

REGISTER(merge_dim_cuda) { return cuda("MergeDim", copy); }
REGISTER(prepend_dim_cuda) { return cuda("PrependDim", copy); }

REGISTER(resize_like_cuda) { return cuda("ResizeLike", copy); }

REGISTER(squeeze_cuda) { return cuda("Squeeze", copy); }
REGISTER(expand_dims_cuda) { return cuda("ExpandDims", copy); }

}  // namespace
}  // namespace stepnet::gpu_reshape
