// Loops of gpu/runtime/launch.h with bodies for tests, compiled for the device: see loops.cu. Threads: as
// gpu/runtime/launch.h.
#pragma once

#include "stepnet/op_spec.h"

namespace stepnet::testing {

// sums[o, i] = the sum of x[o, c, i] over c, and largest[o, i] the largest, -1 if there is none; of doubles.
void reduce_on_gpu(const Call& call, const Tensor& x, Tensor& sums, Tensor& largest);

// y[i] = i, by each.
void count_on_gpu(const Call& call, Tensor& y);

// y[i] = 2 x[i], of float32, by map.
void double_on_gpu(const Call& call, const Tensor& x, Tensor& y);

// y[i, t] = the sum of what the threads of team i gave: each gave i + its own number; t counts the threads.
void add_up_teams(const Call& call, Tensor& y);
int64_t team_size();

}  // namespace stepnet::testing
