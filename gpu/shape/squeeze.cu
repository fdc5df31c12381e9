// CUDA kernels for Squeeze and ExpandDims. Meaning and derivatives: see operators/shape/squeeze.cc.
#include "gpu/loops/copy_elements.h"

namespace stepnet::gpu_squeeze {
namespace {

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

REGISTER(squeeze_cuda) { return cuda("Squeeze", copy); }
REGISTER(expand_dims_cuda) { return cuda("ExpandDims", copy); }

}  // namespace
}  // namespace stepnet::gpu_squeeze
