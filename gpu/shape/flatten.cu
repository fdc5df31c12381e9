// CUDA kernels for Flatten and FlattenToVec. Meaning and derivatives: see operators/shape/flatten.cc.
#include "gpu/loops/copy_elements.h"

namespace stepnet::gpu_flatten {
namespace {

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

REGISTER(flatten_cuda) { return cuda("Flatten", copy); }
REGISTER(flatten_to_vec_cuda) { return cuda("FlattenToVec", copy); }

}  // namespace
}  // namespace stepnet::gpu_flatten
