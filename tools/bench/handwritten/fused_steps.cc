// The kernels of fused_steps.h for every CPU, and the choice at start.
#include "tools/bench/handwritten/fused_steps.h"

#include "tools/bench/handwritten/fused_lanes.h"

namespace stepnet::bench {

const FusedKernels& fused_kernels_plain() { return kFusedKernelsHere; }

const FusedKernels& fused_kernels() {
  static const FusedKernels& best = fused_kernels_wide() ? *fused_kernels_wide() : fused_kernels_plain();
  return best;
}

}  // namespace stepnet::bench
