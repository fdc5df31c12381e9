// From the full form of a RecurrentNetwork back to the short form, so that what is built from short forms is there for
// nets in full form too, those of the public format's own builders among them.
//
// Threads: pure functions.
#pragma once

#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

// The same network in short form, without a backward step net and without the scratch output. Throws Error that says
// what the short form has no words for: windows of several rows, views from other rows than the first or the last.
// `nested`: it stands in a step net, where forward nets have lost their backward step nets.
OperatorDef short_form_of(const OperatorDef& op, bool nested);

}  // namespace stepnet
