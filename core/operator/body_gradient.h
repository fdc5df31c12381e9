// The derivative of an operator's body: its steps run backwards, by their own derivatives.
//
// Threads: pure functions, but for the formula that they record into.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stepnet/op_spec.h"

namespace stepnet {

// A step of a program as a call of its operator, with blobs that `name` gives to slots, "" to those that are absent.
OperatorDef call_of(const GradientProgram::Step& step, const std::function<std::string(int)>& name);

// True if the derivative by some input follows from the operator's body, as it has none of its own.
bool derives_by_body(const OpSpec& spec);

// Records the gradients of the `wanted` inputs of an operator that has a body into `f`, which is a formula of that
// operator, and returns them: one per actual input, none where it is not wanted or no output depends on it. Throws
// Error if a step on the way has no derivative.
std::vector<Gradient> body_gradients(const OpSpec& spec, const OperatorDef& def, const void* args, Formula& f,
                                     const std::vector<bool>& wanted);

}  // namespace stepnet
