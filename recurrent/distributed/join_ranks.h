// The ranks that mpirun has started, for programs that train, on CPUs or GPUs. Threads: one thread at a time. Errors:
// Error if MPI cannot be loaded, if others do not come in time, and if a build without MPI is started as several
// processes.
#pragma once

#include "recurrent/train/ranks.h"

namespace stepnet {

// The processes that were started together; null for one process alone. `timeout`: how many seconds they wait for each
// other; 0: as the environment says (operators/collective/world.h).
RanksPtr join_ranks(double timeout = 0);

// The GPU that this rank of several trains on: those of a machine get its GPUs in turn. A process that sees only some
// of them (CUDA_VISIBLE_DEVICES) counts these.
Device gpu_of(const Ranks& ranks);

// The ranks, each of which is to train on that device; null for null. All of them must call it. Those of GPUs then move
// tensors of these by NCCL. Throws Error if some are on a GPU and others on the CPU, if two have the same GPU, and if
// NCCL cannot be loaded.
RanksPtr ranks_on(RanksPtr ranks, Device device);

// For runs without data: ranks of which there is only the number, this process being the first of so many; null for
// one. From then on common worlds that nets make without data have as many. Throws Error in a build without MPI.
RanksPtr claim_ranks(int size);

}  // namespace stepnet
