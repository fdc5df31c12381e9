// A pass over a step net in short form, before its gradient is derived: FCs that read the same input, such as those of
// an LSTM's gates, become one FC with all their weights below each other, and a SplitByRows. One large product is
// faster than several small ones, forward and backward.
//
// The weights are joined in the net outside, once per run. They must come from there, and the FCs must give the same
// "axis". Threads: pure functions.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "proto/net.pb.h"

namespace stepnet {

struct MergeUse {
  std::set<std::string> inside;  // names that the step net gets from links: no parameters
  std::set<std::string> kept;    // blobs that are made where they are, because they are computed again
  // New names from such ones, for the step net and for the net outside.
  std::function<std::string(const std::string&)> fresh, fresh_outside;
};

struct MergedProducts {
  NetDef step;
  std::vector<OperatorDef> joins;  // for the net outside
};

MergedProducts merge_products(const NetDef& step, const MergeUse& use);

}  // namespace stepnet
