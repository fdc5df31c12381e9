// CUDA kernel for WithGradient. Meaning and derivative: see operators/control/with_gradient.cc.
#include "operators/control/with_gradient.h"

#include "stepnet/operator.h"

namespace stepnet::gpu_with_gradient {
namespace {

REGISTER(with_gradient_cuda) { return cuda<WithGradientArgs>("WithGradient", copy_results); }

}  // namespace
}  // namespace stepnet::gpu_with_gradient
