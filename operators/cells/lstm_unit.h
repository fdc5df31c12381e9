// The arguments of LSTMUnit and its gradient; see lstm_unit.cc.
#pragma once

#include "operators/cells/unit_rows.h"

namespace stepnet {

struct LstmArgs : UnitArgs {
  float forget_bias = 0;
  bool activated_gates = false;
  bool from_activated = false;
};

// Where the gradient's inputs stand: H_prev, C_prev, gates, [seq_lengths,] timestep, H, C, dH, dC.
struct LstmGradientInputs {
  int c, dh, dc;
  explicit LstmGradientInputs(const LstmArgs& a) : c(a.sequence_lengths ? 6 : 5), dh(c + 1), dc(dh + 1) {}
};

}  // namespace stepnet
