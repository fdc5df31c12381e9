// The kernels of fused.h for every CPU, and the choice at start.
#include "core/compute/elementwise_chain.h"

#include "core/compute/fused_loops.h"

namespace stepnet {

const FusedKernels& fused_kernels_plain() { return kFusedKernelsHere; }

const FusedKernels& fused_kernels() {
  static const FusedKernels& best = fused_kernels_wide() ? *fused_kernels_wide() : fused_kernels_plain();
  return best;
}

double fused_nanoseconds(FusedCode code) { return code == FusedCode::sigmoid || code == FusedCode::tanh ? 0.4 : 0.05; }

}  // namespace stepnet
