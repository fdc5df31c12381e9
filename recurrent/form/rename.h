// Other names for what a network in short form gets from outside. Threads: pure functions.
#pragma once

#include <map>
#include <string>

#include "proto/recurrent.pb.h"

namespace stepnet {

// Blobs of the net around the operator get the names that the map has for them: sequences, states, outputs, lengths,
// and what the step net, or one inside it, reads by name. Names that stand for blobs of the step net stay.
void rename_in_short_form(RecurrentDef& def, const std::map<std::string, std::string>& names);

}  // namespace stepnet
