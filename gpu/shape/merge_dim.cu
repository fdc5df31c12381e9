// CUDA kernels for MergeDim and PrependDim. Meaning and derivatives: see operators/shape/merge_dim.cc.
#include "gpu/loops/copy_elements.h"

namespace stepnet::gpu_merge_dim {
namespace {

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

REGISTER(merge_dim_cuda) { return cuda("MergeDim", copy); }
REGISTER(prepend_dim_cuda) { return cuda("PrependDim", copy); }

}  // namespace
}  // namespace stepnet::gpu_merge_dim
