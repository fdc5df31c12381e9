// What the files random_step_nets_*.cc share about runs.
// Threads: not for concurrent use.
#pragma once

#include "tests/recurrent/random_step_nets.h"

namespace stepnet::testing {

std::set<std::string> names_of(const Feeds& feeds);
// Some of the names, at least one if there is any.
std::set<std::string> some_of(const std::set<std::string>& names, uint64_t part);

// The initial values, by name, that states take from another state's last row in the run before.
std::map<std::string, std::string> carried_states(const StepNet& net);

// Gradients along a random direction against differences of the unrolled net's outputs.
Finding check_along_direction(const StepNet& net, const std::map<std::string, Tensor>& gradients, const NetShape& shape,
                              uint64_t data);

// A state that is another's value of the timestep before, and that other one.
struct DelayedState {
  CellState first, later;
};
std::optional<DelayedState> delayed_state(const StepNet& net);
// Makes them one state of two initial rows, in a net in full form whose last operator is the network.
void merge_rows(NetDef& net, const DelayedState& states);

}  // namespace stepnet::testing
