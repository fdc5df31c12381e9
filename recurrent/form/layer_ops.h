// RNN, GRU and LSTM: layers of well-known cells as one operator, which stands for RecurrentNetworks in short form.
//
// Inputs: X [T, B, I]; h0 [L * D, B, H] or "" for zeros, of LSTM then c0 likewise; for every layer, and in it for every
// direction, w_ih [G * H, ...], w_hh [G * H, H], b_ih [G * H], b_hh [G * H]; lengths int32 [B], if they are given.
// Outputs: Y [T, B, D * H], h_n [L * D, B, H], of LSTM then c_n; each may be "".
// L are layers, D directions (forward, then reverse), G gates: of LSTM i, f, o, g, of GRU reset, update, candidate,
// where the update gate keeps the old state. The layers above the first read D * H values.
// Threads: pure functions.
#pragma once

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Replaces every such operator of the net by RecurrentNetworks in short form and the operators that join them. Throws
// Error with the operator's place.
void expand_cell_operators(NetDef& net);

}  // namespace stepnet
