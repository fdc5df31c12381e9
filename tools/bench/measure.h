// The measurements. Each throws Error if a contender's results are wrong, and prints a warning if other programs kept
// the machine busy.
//
// Threads: for the main thread.
#pragma once

#include "tools/bench/options.h"
#include "tools/bench/report.h"

namespace stepnet::bench {

// Each cell at each size, forward and training, against its peers.
void measure_cells(const Options& options, Report& report);
// A call per timestep with the state kept, against oneDNN.
void measure_stream(const Options& options, Report& report);
// What a step net costs beside its operators' kernels.
void measure_overhead(const Options& options, Report& report);
// Two layers in one step net, with and without the pass "wavefront".
void measure_wavefront(const Options& options, Report& report);

}  // namespace stepnet::bench
