// Where an input of GRUUnit's gradient stands; see gru_unit.cc.
#pragma once

#include "operators/cells/unit_rows.h"

namespace stepnet {

// The gradient's inputs: H_prev, gates, [seq_lengths,] timestep, H, dH.
inline int gru_gradient_dh(const UnitArgs& a) { return a.sequence_lengths ? 5 : 4; }

}  // namespace stepnet
