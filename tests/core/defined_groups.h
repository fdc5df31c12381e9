// Moves operators of a net into a definition of an operator, for tests that compare the net with what it was.
//
// Threads: pure functions.
#pragma once

#include <set>
#include <string>

#include "stepnet/proto/net.pb.h"

namespace stepnet::testing {

// Puts operators [begin, end) of `inner`, which is `net` or a net in it, into a definition of `net` that is called
// `type`, under other names, and a use of it in their place. Its outputs are all that they write, or, if `needed` is
// not empty, what it has or later operators read. Returns false, and leaves the nets as they are, if they hold nets,
// draw random numbers, or work on blobs.
bool move_into_definition(NetDef& net, NetDef& inner, int begin, int end, const std::string& type,
                          const std::set<std::string>& needed = {});

// The last of the net's definitions, which must be there.
NetDef& last_definition(NetDef& net);

}  // namespace stepnet::testing
