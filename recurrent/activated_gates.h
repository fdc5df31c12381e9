// A pass over a step net and its backward one: an operator that can (SavedInstead in core/op_spec.h) overwrites a value
// that nobody but its gradient operator reads again with one that saves the gradient work: an LSTM's gates after their
// activations in place of their sums.
#pragma once

#include <set>
#include <string>

#include "proto/net.pb.h"

namespace stepnet {

// `fixed`: blobs that must keep the values that the step net gives them. Returns the blobs that are overwritten.
std::set<std::string> activate_gates(NetDef& step_net, NetDef& backward_net, const std::set<std::string>& fixed);

}  // namespace stepnet
