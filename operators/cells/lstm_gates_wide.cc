// The kernels of lstm_gates.h, built for x86-64-v4. Only what is in this file may use its instructions.
#include "operators/cells/lstm_gates_rows.h"

namespace stepnet {

const LstmKernels* lstm_kernels_wide() {
#if defined(__AVX512F__)
  return cpu_is_x86_64_v4() ? &kLstmKernelsHere : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace stepnet
