// Operators' own examples put to the test: gradients of both orders, and what holds for operators without gradients.
//
// Beside what core/gradcheck/gradient_check.h tries, for each example: with all floating values as float the outputs
// are those of double, rounded; with one blob for two inputs the gradient is the sum of theirs; an operator without
// gradients writes every element of its outputs. Threads: pure functions; files are made in a folder of the example's
// own.
#pragma once

#include <string>

#include "core/gradcheck/gradient_check.h"
#include "core/operator/op_spec.h"

namespace stepnet {

// Throws Error if the example cannot be run. On another device than the CPU the outputs are compared with the CPU's.
GradientReport check_example(const OpSpec& spec, const OpExample& example, const GradientCheckOptions& options,
                             Device device = {});

}  // namespace stepnet
