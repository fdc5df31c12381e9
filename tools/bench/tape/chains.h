// Chains of small operators on tensors of one element, whose time is what recording one and running it backward costs.
// Threads: one.
#pragma once

#include <string>
#include <vector>

namespace stepnet::bench {

struct ChainTimes {
  double forward = 0, backward = 0, release = 0;  // nanoseconds of the CPU per operator
  double sum() const { return forward + backward + release; }
};

// "mul_constant", "mul_leaf", "tanh", "add", "fc".
const std::vector<std::string>& chain_names();
// `count` operators one after the other, their gradient, and letting go of both. Throws Error for an unknown name.
ChainTimes time_chain(const std::string& name, int count);

}  // namespace stepnet::bench
