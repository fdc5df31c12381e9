// The kernels of fused_steps.h, built for x86-64-v4. Only what is in this file may use its instructions.
#include "tools/bench/handwritten/fused_lanes.h"

namespace stepnet::bench {

const FusedKernels* fused_kernels_wide() {
#if defined(__AVX512F__)
  return cpu_is_x86_64_v4() ? &kFusedKernelsHere : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace stepnet::bench
