// What stands for several operators is replaced by these before a net runs; whoever has such operators registers how.
//
// Threads: registration runs before main; afterwards these are pure functions.
#pragma once

#include "proto/net.pb.h"

namespace stepnet {

// Adds a function that replaces all of its operators in a net. Returns true.
bool register_expansion(void (*expand)(NetDef&));

// Calls them all. A net without such operators stays as it is. Throws Error with the operator's place.
void expand_net(NetDef& net);

}  // namespace stepnet
