// A pass over a step net and its backward one: an operator that can (SavedInstead in core/operator/op_spec.h)
// overwrites a value that nobody but its gradient operator reads again with one that saves the gradient work: an LSTM's
// gates after their activations in place of their sums.
#pragma once

#include "recurrent/form/spec.h"

namespace stepnet {

// Sets `activated`. Forward and gradient operator must do it alike.
void activate_gates(RecurrentSpec& spec);

}  // namespace stepnet
