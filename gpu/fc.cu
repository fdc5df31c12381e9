// CUDA kernels for FC and its gradient. Meaning and derivatives: see operators/fc.cc.
#include "operators/fc.h"

#include "gpu/fc_product.h"

namespace stepnet::gpu_fc {
namespace {

REGISTER(fc_cuda) { return cuda<FcArgs>("FC", gpu::fc_forward<FcArgs, float>, gpu::fc_forward<FcArgs, double>); }
REGISTER(fc_gradient_cuda) {
  return cuda<FcArgs>("FCGradient", gpu::fc_gradient<FcArgs, float>, gpu::fc_gradient<FcArgs, double>);
}

}  // namespace
}  // namespace stepnet::gpu_fc
