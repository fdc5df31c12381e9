// Programs run backwards, step by step, by the derivatives of the steps: the derivative of an operator's body, and the
// tangents of an operator's outputs, which are the derivative of its derivative.
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
// operator, and returns them: one per actual input, none where it is not wanted or no output depends on it. Gradients
// of outputs before `first_output` are left out. Throws Error if a step on the way has no derivative.
std::vector<Gradient> body_gradients(const OpSpec& spec, const OperatorDef& def, const void* args, Formula& f,
                                     const std::vector<bool>& wanted, size_t first_output = 0);

// Forward mode: the tangents of the operator's outputs from those of its inputs. With J^T u what its derivative
// computes from gradients u, J v is the gradient, with respect to u, of <J^T u, v>: the derivative's program run
// backwards. The program's slots are the inputs, behind them as many tangents of inputs (of the operator's n inputs,
// that of input i is input n + i), and the outputs; its results are the tangents of the outputs, dense, undefined where
// they are zero. `moved`: per actual input, whether it has a tangent; `needed`: per actual output. Throws Error if an
// input that moves has no derivative, or if what is computed would depend on u.
GradientProgram record_tangents(const OpSpec& spec, const OperatorDef& def, const void* args,
                                const std::vector<bool>& moved, const std::vector<bool>& needed);

// False of outputs that have no tangents: integers, and what is no tensor of numbers.
bool may_move(const OpSpec& spec, int output);

// Keeps only steps of the program that some result needs, and finds which inputs and outputs it reads.
void finish_program(GradientProgram& program, int inputs, int outputs);

// Per input of a step, whether its value is read, and not its shape alone.
std::vector<bool> reads_of(const GradientProgram::Step& step);

}  // namespace stepnet
