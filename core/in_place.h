// Whether an operator may write an output over an input: with the same name in a net, and by planners of memory that
// give two names the same bytes.
//
// Threads: a pure function.
#pragma once

#include "core/op_spec.h"

namespace stepnet {

// Of actual inputs and outputs.
bool may_write_over(const OpSpec& spec, int in, int out);

}  // namespace stepnet
