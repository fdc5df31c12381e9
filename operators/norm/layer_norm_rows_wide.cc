// The kernels of layer_norm_rows.h, built for x86-64-v4. Only what is in this file may use its instructions.
#include "operators/norm/layer_norm_loops.h"

namespace stepnet {

const NormKernels* norm_kernels_wide() {
#if defined(__AVX512F__)
  return cpu_is_x86_64_v4() ? &kNormKernelsHere : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace stepnet
