// CUDA kernels for FCColumns and its gradient. Meaning and derivatives: see operators/products/fc_columns.cc.
#include "operators/products/fc_columns.h"

#include "gpu/loops/fc_product.h"

namespace stepnet::gpu_fc_columns {
namespace {

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
}  // namespace stepnet::gpu_fc_columns
