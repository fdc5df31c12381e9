// CUDA kernel for EnsureDense. Meaning and derivative: see operators/index/ensure_dense.cc.
#include "gpu/loops/copy_elements.h"

namespace stepnet::gpu_ensure_dense {
namespace {

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

REGISTER(ensure_dense_cuda) { return cuda("EnsureDense", copy); }

}  // namespace
}  // namespace stepnet::gpu_ensure_dense
