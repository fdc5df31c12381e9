// Nets drawn at random, in float32, bfloat16 and float16, for tests that compare what a run takes with what was said
// before it: estimates and memory budgets.
//
// Threads: set_threads() is called; not for concurrent use.
#pragma once

#include <cstdint>
#include <string>

#include "recurrent/train/memory_budget.h"
#include "tests/recurrent/estimate_nets.h"

namespace stepnet::testing {

struct HalfNet {
  EstimateNet net;  // of float32
  DType type = DType::float32;
  int threads = 1;
  bool is_recurrent = false;
};

// The same seed gives the same net. One in two has a recurrent network, of one cell or several.
HalfNet random_half_net(uint64_t seed);

// Its training step in its type: parameters are float32, what is computed from them is not.
TrainingEstimate training_of(const HalfNet& net);

// Each returns "" or what is wrong.
// Live bytes of every operator: never more than the estimate, and just as many where one thread takes them.
std::string check_estimate(const HalfNet& net);
// Runs as `stepnet train` does it, with planned memory.
std::string check_planned(const HalfNet& net);
// Some budgets from the least that is accepted, as the message about a smaller one has it, to what the step takes.
std::string check_budgets(const HalfNet& net);
std::string check_half_net(const HalfNet& net);  // all of these

}  // namespace stepnet::testing
