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
//   step net "rnn": T 6, B 2, block 6, 1 stage
//     before  xw = FC(X, W, b)
//     step    hw = FC(h_prev, U); reads the state "h_prev", which timesteps write
//     step    h = fused Add+Tanh(xw, hw)
//   link     float[1,2,3] "h_prev": rows of float[7,2,3] from 0
std::string to_text(const StepIr& ir);

// Why the operator runs in each timestep rather than once per block; "" if it does not.
std::string why_in_steps(const StepIr& ir, size_t op);

}  // namespace stepnet
