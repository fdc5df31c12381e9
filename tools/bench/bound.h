// How fast this machine could be at best: a lower bound of a cell's time from what its cores compute and read.
//
// Threads: for the main thread; measuring opens regions of as many threads as are set.
#pragma once

#include "tools/bench/cell_case.h"

namespace stepnet::bench {

// Floating-point operations per second of a large matrix product with the threads that are set.
double measured_flops();
// Bytes per second at which the threads that are set together read `bytes`, again and again.
double measured_read_rate(int64_t bytes);

// Milliseconds. The products at the rate of a large one; a step's product with the state takes at least the time to
// read its weights. What is done element by element, and waiting of threads for each other, is left out.
double lower_bound_ms(const Cell& cell, const Size& size, Mode mode, double flops, double read_rate);

}  // namespace stepnet::bench
