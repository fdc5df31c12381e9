// The graph of a net as TensorBoard shows it: GraphDef of TensorFlow's graph.proto.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// The bytes of a GraphDef. Operators are nodes with their types, numbers and texts among their arguments, and edges
// from those that wrote what they read; what nobody in the net writes is a Parameter, if it is one of these, or a
// Placeholder. The nets inside an operator are below its name and the argument's: a step net's operators are
// h_all/step_net/..., say, with placeholders for what links give the step net.
std::string graph_def_of(const NetDef& net, const std::vector<std::string>& parameters);

}  // namespace stepnet
