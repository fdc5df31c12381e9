// What tests of step programs share: a network that has run, and how many of its operators run when.
//
// Threads: not for concurrent use.
#pragma once

#include <iosfwd>
#include <set>
#include <string>

#include "recurrent/network/kept.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing {

// Runs the cell's network in full form and the gradients of `wanted`, from ones for its output `target`, once in the
// workspace. The programs of both runs are there while the workspace is.
const RecurrentScratch& run_programs(Workspace& workspace, const Cell& cell, const Feeds& feeds,
                                     const std::string& target, const std::set<std::string>& wanted);

// Operators that run once per block, and once per timestep.
struct OperatorCounts {
  int forward_blocks, forward_steps, backward_blocks, backward_steps;
  bool operator==(const OperatorCounts&) const = default;
};
void PrintTo(const OperatorCounts& c, std::ostream* out);

OperatorCounts operator_counts(const RecurrentScratch& scratch);

}  // namespace stepnet::testing
