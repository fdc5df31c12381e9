// Operators that a net defines in text (core/passes/operator_definition.h): each use is replaced by the definition's
// operators, so that all that comes after meets ordinary operators alone.
//
//   op { type: "MySwish" input: "a" output: "b" }
//
// becomes
//
//   op { type: "Sigmoid" input: "a" output: "MySwish.b/s" }
//   op { type: "Mul" input: "a" input: "MySwish.b/s" output: "b" }
//
// A use means what one operator would: it reads all inputs before it writes its outputs, which may have the inputs'
// names. A definition serves the net that has it, the nets inside that, and the definitions behind it. One with a
// gradient net ends with a WithGradient, whose derivative that net is. Threads: pure functions.
#pragma once

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// WithGradient(results..., inputs...): the results as they are, with a derivative by the inputs that its arguments say.
inline constexpr const char* kWithGradient = "WithGradient";

// True of an input of a WithGradient that is a result: no derivative goes through it.
bool is_given_result(const OperatorDef& op, int input);

// Replaces all uses, in the nets inside and in the model's initialiser as well, and drops the definitions. Networks in
// short form stay so. Throws Error with the place of the use or the definition; a definition that is not used is
// checked, too.
void expand_defined_operators(NetDef& net);

}  // namespace stepnet
