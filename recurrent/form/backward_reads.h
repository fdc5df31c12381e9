// What a backward step net reads of the forward run, and which part of it some of its blobs need.
//
// Threads: pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "recurrent/form/spec.h"

namespace stepnet {

// The step blobs that the backward step net reads before it writes them: by value, and by shape alone. Throws Error,
// with the operator's place, for an operator that there is not.
struct BackwardReads {
  std::set<std::string> values, shapes;
};
BackwardReads backward_reads(const RecurrentSpec& spec);

// The forward links, and for the backward step net also those of blobs that are only other names of linked ones.
std::vector<Link> links_for_backward(const RecurrentSpec& spec);

// The operators of a backward step net that these of its blobs need, with outputs that none needs left empty.
NetDef needed_operators(const NetDef& backward_net, std::set<std::string> needed);

}  // namespace stepnet
