// From the short form of a RecurrentNetwork to the full form of the public format.
//
// The short form is the message [stepnet.recurrent]: a step net, which of its inputs are rows of sequences, which
// output feeds which state, and which of its values are outputs. The expansion
//   - expands the networks in the step net,
//   - puts operators into it that keep timesteps beyond a sample's length apart,
//   - appends what the step net reads by name to the operator's inputs,
//   - splits products over a Concat (recurrent/form/passes.h),
//   - derives the backward step net from the operators' derivatives,
//   - links states, sequences and their gradients to windows of one tensor each, so that nothing is copied; a gradient
//     that has several destinations is linked to the first and written once more for each other (kSpreadName),
//   - names parameter gradients; one that is only another name of a blob becomes an Alias in the backward step net.
// What the public format cannot say becomes arguments of its own (recurrent/form/spec.cc), and only then.
//
// Threads: pure functions.
#pragma once

#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

// Replaces every short-form operator of the net, and of the net's model initialiser, in place. Throws Error with the
// operator's place. Nets without short forms are left as they are.
void expand_recurrent(NetDef& net);

}  // namespace stepnet
