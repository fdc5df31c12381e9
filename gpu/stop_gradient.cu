// CUDA kernel for StopGradient. Meaning and derivative: see operators/stop_gradient.cc.
#include "core/operator.h"
#include "operators/copy_elements.h"

namespace stepnet::gpu_stop_gradient {
namespace {

REGISTER(stop_gradient_cuda) { return cuda("StopGradient", copy_values); }

}  // namespace
}  // namespace stepnet::gpu_stop_gradient
