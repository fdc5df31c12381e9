// A pass over a step net in short form, before its gradient is derived: an FC of parts that a Concat lays side by side
// becomes one FCColumns for each part and their Sum. So the product with the sequence can run for many timesteps at
// once, though another part is a state, and the Concat need neither be made nor kept for the backward pass.
//
// Concat and FC must give the same number as "axis", since the number of dimensions is not known here. All readers of
// the Concat must be such FCs, and nothing outside of the step net may see it. A Concat of more than 64 parts stays, or
// of parts that other Concats make, where those together have more. Threads: pure functions.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "proto/net.pb.h"

namespace stepnet {

struct ConcatUse {
  std::set<std::string> states;  // inputs of the step net that the timestep before gives
  std::set<std::string> shown;   // blobs that must stay
  std::function<std::string(const std::string& blob)> term_name;  // a new name, for a term of the blob
};

NetDef split_concats(const NetDef& net, const ConcatUse& use);

}  // namespace stepnet
