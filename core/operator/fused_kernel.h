// Operators that run by their instructions (OpSpec::fused), as chains do. Threads: pure functions of their arguments.
#pragma once

#include "stepnet/elementwise_chain.h"
#include "stepnet/op_spec.h"

namespace stepnet {

// Which of the inputs the instructions read; the others are there for their shapes.
bool reads_input(const FusedBody& body, int input);

// The call's one output from its inputs, whose type is that of the output.
void run_fused_body(const FusedBody& body, Call& call);

}  // namespace stepnet
