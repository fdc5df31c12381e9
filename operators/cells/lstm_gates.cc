// The kernels of lstm_gates.h for every CPU, and the choice at start.
#include "operators/cells/lstm_gates.h"

#include "operators/cells/lstm_gates_rows.h"

namespace stepnet {

const LstmKernels& lstm_kernels_plain() { return kLstmKernelsHere; }

const LstmKernels& lstm_kernels() {
  static const LstmKernels& best = lstm_kernels_wide() ? *lstm_kernels_wide() : lstm_kernels_plain();
  return best;
}

}  // namespace stepnet
