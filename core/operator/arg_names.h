// Arguments that an operator does not read: those of the public format that it accepts or refuses, and any other name.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "stepnet/op_spec.h"

namespace stepnet {

// Arguments that every operator of the public format may carry and that change no result.
const std::vector<AcceptedArg>& common_args();

// The one value of an argument, as text.
std::string value_text(const Argument& arg);

// The family that an argument of this name belongs to; null if there is none, or if the name is declared.
const ArgFamily* arg_family(const OpSpec& spec, const std::string& name);

// Throws Error if the operator refuses the argument, or if its name is a misspelling of one that matters. Returns a
// warning, with the nearest names, if neither the operator nor the public format has such an argument; "" otherwise.
std::string check_arg_name(const OpSpec& spec, const Argument& arg);

// The same for all operators of the net and of the nets inside it, or of the nets inside one operator; warnings, which
// say where, are appended, if asked for. Operators that do not exist are left to others.
void check_arg_names(const NetDef& net, std::vector<std::string>* warnings);
void check_arg_names_inside(const OperatorDef& op, std::vector<std::string>* warnings);

}  // namespace stepnet
