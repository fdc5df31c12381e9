// Runs the program of a derivative on variables.
// Threads: as Variable.
#pragma once

#include <span>

#include "stepnet/eager_op.h"
#include "stepnet/variable.h"

namespace stepnet::autograd {

// `slots`: one variable per slot of the program; those of inputs and outputs are there, those of steps are made. What
// no later step reads is released on the way.
void run_steps(const EagerGradient& gradient, std::span<Variable> slots, Place place);

}  // namespace stepnet::autograd
