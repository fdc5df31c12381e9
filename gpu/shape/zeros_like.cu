// CUDA kernel for ZerosLike. Meaning and derivative: see operators/shape/zeros_like.cc.
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_zeros_like {
namespace {

void fill(Call& call) { call.out(0).fill_zero(); }

REGISTER(zeros_like_cuda) { return cuda("ZerosLike", fill); }

}  // namespace
}  // namespace stepnet::gpu_zeros_like
