// Stepnet's own messages, extension fields of operators and nets, as ordinary arguments, which all readers of the
// public format know.
//
// The argument has the extension's full name, and stands for the message by a net: fields that are numbers, texts or
// nets are arguments of it, those that are messages operators, whose type is the field's name:
//
//   arg { name: "stepnet.recurrent" n {                       # [stepnet.recurrent] {
//     op { type: "sequence" input: "x" output: "x_t" }        #   sequence { outer: "x" inner: "x_t" }
//     op { type: "state" input: "h_prev" input: "h0" output: "h" output: "h_all" }
//                                                             #   state { input: "h_prev" initial: "h0" output: "h"
//                                                             #           all: "h_all" }
//     arg { name: "step_net" n { ... } }                      #   step_net { ... }
//   } }                                                       # }
//
// Inputs and outputs of such operators are, in order:
//   sequence  outer -> inner                     output  inner -> outer
//   state     input, initial -> output, all, last    carry  from -> to
// "" stands for one that is left out before another; other fields (size) are arguments.
//
// Threads: pure functions.
#pragma once

#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

// The argument of a net that has nets, definitions of operators of its own (core/passes/defined_operators.h): it
// carries no message.
inline constexpr const char* kOperators = "stepnet.operators";
inline bool holds_definitions(const Argument& arg) { return arg.name() == kOperators; }
// The debug_info of an operator that was put in the place of a use of a definition begins with this, and says of which.
inline constexpr const char* kOfDefinition = "of the definition of ";

// True if the argument carries an extension, or claims to.
inline bool is_extension(const Argument& arg) { return arg.name().starts_with("stepnet.") && !holds_definitions(arg); }

// Puts what arguments of the operator, or of the net itself, carry into its extensions. Throws Error that says which
// field is wrong, and where the operator stands that gives it.
void take_extensions(OperatorDef& op);
void take_extensions(NetDef& net);

// The same for the net and all nets in it, for nets that did not come through stepnet/text.h.
void take_all_extensions(NetDef& net);
// The reverse, for the net and all nets in it.
void carry_extensions(NetDef& net);

}  // namespace stepnet
