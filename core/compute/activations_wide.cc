// The kernels of activations.h, built for x86-64-v4. Only what is in this file may use its instructions.
#include "core/compute/activations_loops.h"

namespace stepnet {

const ActivationKernels* activations_wide() {
#if defined(__AVX512F__)
  return cpu_is_x86_64_v4() ? &kActivationsHere : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace stepnet
