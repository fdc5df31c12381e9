// A StepIr as text, for people and for the tests of passes: what runs for a block of timesteps, what runs in each of
// them and why, and where values lie.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "recurrent/step/ir.h"

namespace stepnet {

// A line on the whole, one for each operator in the order in which they run, and one for each slot that is used.
//
//   step net "rnn/step": T 6, B 2, block 6, 1 stage
//     before  xw = FC(x, W, b)
//     step    h, t = fused Tanh+Mul(h_prev, xw); reads "h_prev", a state that timesteps write
//     link     "h_prev" float[1, 2, 9] of [7, 2, 9]
//     external "W" float[9, 9]
std::string to_text(const StepIr& ir);

}  // namespace stepnet
