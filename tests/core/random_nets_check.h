// Whether a random net's numbers are right: its runs as it is, with intermediates released, with memory planned, with
// several threads and in less memory by recomputation, forward and with gradients, against the reference; and its
// gradients along random directions against differences of the reference.
//
// Threads: not for concurrent use; the number of threads of the process changes.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "tests/core/random_nets.h"

namespace stepnet::testing {

// What the checks came across, so that a campaign can say that it looked at something.
struct NetCounts {
  int runs = 0, planned_runs = 0;  // of nets; of these, in a block of planned memory
  int differentiated = 0;          // nets with gradients
  int refused = 0;                 // nets whose gradient pass says why there are none
  int differences = 0;             // gradients that were compared with differences
  int tangents = 0;                // nets whose forward mode was compared with reverse mode
  int recomputed = 0;              // nets of which some part runs again
  int threw = 0;                   // runs that failed alike in the reference and in the net
};

// "" or what is wrong first.
std::string check_random_net(const RandomNet& r, uint64_t seed, NetCounts& counts);

// The smallest net found, by leaving out operators, outputs, targets and what is wanted, of which `is_wrong` is true.
RandomNet shrink(RandomNet r, const std::function<bool(const RandomNet&)>& is_wrong);

// How many seeds STEPNET_RANDOM_NETS asks for, and the first; none if it is not set.
std::pair<uint64_t, uint64_t> campaign_seeds();

// As protobuf text, with what it is fed and asked for.
std::string text_of(const RandomNet& r);

}  // namespace stepnet::testing
