// The kernels of activations.h for every CPU, and the choice at start.
#include "core/compute/activations.h"

#include "core/compute/activations_loops.h"

namespace stepnet {

const ActivationKernels& activations_plain() { return kActivationsHere; }

const ActivationKernels& activations() {
  static const ActivationKernels& best = activations_wide() ? *activations_wide() : activations_plain();
  return best;
}

}  // namespace stepnet
