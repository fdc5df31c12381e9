// CUDA kernel for StopGradient. Meaning and derivative: see operators/control/stop_gradient.cc.
#include "operators/loops/copy_elements.h"
#include "stepnet/operator.h"

namespace stepnet::gpu_stop_gradient {
namespace {

REGISTER(stop_gradient_cuda) { return cuda("StopGradient", copy_values); }

}  // namespace
}  // namespace stepnet::gpu_stop_gradient
