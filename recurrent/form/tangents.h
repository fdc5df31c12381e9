// Forward mode through a network in short form.
//
// Threads: pure functions.
#pragma once

#include "core/passes/network_rules.h"

namespace stepnet {

// The network, which is in short form, as one that also computes the tangents of those of its outputs that are needed
// and move. What has to run before it, such as zeros for a tangent's first state, stands in front of it.
TangentOperators move_network(const TangentCall& call);

// The network under free names, to stand beside the one that it is of: `renamed` gets the new names of its outputs.
OperatorDef network_beside(OperatorDef network, const std::function<std::string(const std::string& base)>& fresh,
                           std::map<std::string, std::string>& renamed);
// Lets the network in short form not show this output.
void drop_output(OperatorDef& network, const std::string& name);

}  // namespace stepnet
