// Whether an operator may write an output over an input: with the same name in a net, and by planners of memory that
// give two names the same bytes; and whether it makes the output another name of the input.
//
// Threads: pure functions.
#pragma once

#include "stepnet/op_spec.h"

namespace stepnet {

// The rule that lets the operator write output `out` over input `in`, both actual ones; null if none does.
const InPlaceRule* in_place_rule(const OpSpec& spec, int in, int out);

// True if the output, written over that input, surely has its shape.
bool keeps_shape(const OpSpec& spec, const OperatorDef& def, int in, int out);

// True if the operator's operands are broadcast: it has the argument `broadcast`.
bool broadcasts(const OpSpec& spec);

// True if it works element by element on such operands: it can be told that they have one shape (`equal_shapes`).
bool lays_operands_over(const OpSpec& spec);

// Whether the operator goes on with what output `out` holds from the run before: it would have to be written over an
// input, and that is not given.
bool keeps_value(const OpSpec& spec, int inputs, int out);

// For an output that is another name of an input's storage, if it has that one's shape, that input; -1 for all others.
int aliased_input(const OpSpec& spec, int output);

// The input that the output has the shape of, by its registration; -1 if that does not say.
int shaped_like(const OpSpec& spec, int output);

// True if the output is another name of an input for some shapes, and has a storage of its own for others.
bool may_be_alias(const OpSpec& spec, int output);

inline bool may_write_over(const OpSpec& spec, int in, int out) { return in_place_rule(spec, in, out) != nullptr; }

}  // namespace stepnet
