// Times of what runs on a GPU, by CUDA events.
//
// Threads: for the main thread.
#pragma once

#include "tools/bench/cell_case.h"

namespace stepnet::bench {

// Milliseconds of one run. `median` and `least` are between events before and after on the stream, so that gaps between
// kernels count and the host's own time does not, where it is ahead; `wall` is the median by the host's clock, which
// ends when the device is done.
struct GpuTimes {
  double median = 0, least = 0, wall = 0;
};

// `rounds` samples, fewer once they take more than so many seconds, but three at least. A sample is of as many runs,
// one behind the other, as take some milliseconds. Runs on device 0 that do not count come first.
GpuTimes time_on_gpu(Contender& contender, int rounds, double seconds);

}  // namespace stepnet::bench
