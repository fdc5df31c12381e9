// The kernels of layer_norm_rows.h for every CPU, and the choice at start.
#include "operators/norm/layer_norm_rows.h"

#include "operators/norm/layer_norm_loops.h"

namespace stepnet {

const NormKernels& norm_kernels_plain() { return kNormKernelsHere; }

const NormKernels& norm_kernels() {
  static const NormKernels& best = norm_kernels_wide() ? *norm_kernels_wide() : norm_kernels_plain();
  return best;
}

}  // namespace stepnet
