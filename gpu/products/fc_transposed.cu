// CUDA kernels for FCTransposed and its gradient. Meaning and derivatives: see operators/products/fc_transposed.cc.
#include "operators/products/fc_transposed.h"

#include "gpu/loops/fc_product.h"

namespace stepnet::gpu_fc_transposed {
namespace {

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

}  // namespace
}  // namespace stepnet::gpu_fc_transposed
