// CUDA kernels for FC, FCTransposed, FCColumns and their gradients. Meaning and derivatives: see
// operators/products/fc.cc.
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

REGISTER(fc_transposed_cuda) {
  return cuda<FcTransposedArgs>("FCTransposed", gpu::fc_forward<FcTransposedArgs, float>,
                                gpu::fc_forward<FcTransposedArgs, double>, gpu::fc_forward<FcTransposedArgs, float16>,
                                gpu::fc_forward<FcTransposedArgs, bfloat16>);
}
REGISTER(fc_transposed_gradient_cuda) {
  return cuda<FcTransposedArgs>("FCTransposedGradient", gpu::fc_gradient<FcTransposedArgs, float>,
                                gpu::fc_gradient<FcTransposedArgs, double>, gpu::fc_gradient<FcTransposedArgs, float16>,
                                gpu::fc_gradient<FcTransposedArgs, bfloat16>);
}

REGISTER(fc_columns_cuda) {
  return cuda<FcColumnsArgs>("FCColumns", gpu::fc_forward<FcColumnsArgs, float>, gpu::fc_forward<FcColumnsArgs, double>,
                             gpu::fc_forward<FcColumnsArgs, float16>, gpu::fc_forward<FcColumnsArgs, bfloat16>);
}
REGISTER(fc_columns_gradient_cuda) {
  return cuda<FcColumnsArgs>("FCColumnsGradient", gpu::fc_gradient<FcColumnsArgs, float>,
                             gpu::fc_gradient<FcColumnsArgs, double>, gpu::fc_gradient<FcColumnsArgs, float16>,
                             gpu::fc_gradient<FcColumnsArgs, bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_fc
