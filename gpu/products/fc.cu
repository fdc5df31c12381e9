// CUDA kernels for FC and its gradient. Meaning and derivatives: see operators/products/fc.cc.
#include "operators/products/fc.h"

#include "gpu/loops/fc_product.h"

namespace stepnet::gpu_fc {
namespace {

REGISTER(fc_cuda) {
  return cuda<FcArgs>("FC", gpu::fc_forward<FcArgs, float>, gpu::fc_forward<FcArgs, double>,
                      gpu::fc_forward<FcArgs, float16>, gpu::fc_forward<FcArgs, bfloat16>);
}
REGISTER(fc_gradient_cuda) {
  return cuda<FcArgs>("FCGradient", gpu::fc_gradient<FcArgs, float>, gpu::fc_gradient<FcArgs, double>,
                      gpu::fc_gradient<FcArgs, float16>, gpu::fc_gradient<FcArgs, bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_fc
