// What `stepnet estimate --bandwidth` prints: how a training step would scale to several processes.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/estimate/estimate.h"
#include "recurrent/distributed/scaling_plan.h"

namespace CLI {
class App;
}

namespace stepnet::tools {

struct ScalingOptions {
  double bandwidth = 0;  // 10^9 bytes per second; 0: no plan
  double latency = 0;    // microseconds
  double step_time = 0;  // milliseconds; 0: not known
};
void add_scaling_options(CLI::App& command, ScalingOptions& options);

// When gradients of a training step are final, as `stepnet train` would move them. The step's seconds are shared out to
// operators by their arithmetic or by the bytes that they move, whichever takes longer.
ScalingStep scaling_step(const NetSession& session, const Estimate& estimate, double seconds);

// Of up to so many ranks.
std::string scaling_table(const ScalingStep& step, const ScalingOptions& options, int64_t most_ranks);

}  // namespace stepnet::tools
