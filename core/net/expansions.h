// What stands for several operators is replaced by these before a net runs; whoever has such operators registers how.
//
// Threads: registration runs before main; afterwards these are pure functions.
#pragma once

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Adds a function that replaces all of its operators in a net.
void add_expansion(void (*expand)(NetDef&));

// Calls them all. A net without such operators stays as it is. Throws Error with the operator's place.
void expand_net(NetDef& net);

// Adds a function that takes from a net's operators on blobs what tells them to keep values for a gradient, but where
// another operator of the net reads what they keep.
void add_forward_only(void (*strip)(NetDef&));

// The net as these functions leave it: its outputs are the same, but nothing can be differentiated behind it.
NetDef forward_only(NetDef net);

}  // namespace stepnet
