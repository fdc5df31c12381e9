// CUDA kernel for ZeroGradient. Meaning and derivative: see operators/control/zero_gradient.cc.
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_zero_gradient {
namespace {

void nothing(Call&) {}

REGISTER(zero_gradient_cuda) { return cuda("ZeroGradient", nothing); }

}  // namespace
}  // namespace stepnet::gpu_zero_gradient
