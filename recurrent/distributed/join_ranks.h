// The ranks that mpirun has started, for programs that train. Threads: one thread at a time. Errors: Error if MPI
// cannot be loaded, if others do not come in time, and if a build without MPI is started as several processes.
#pragma once

#include "recurrent/train/ranks.h"

namespace stepnet {

// The processes that were started together; null for one process alone. `timeout`: how many seconds they wait for each
// other; 0: as the environment says (operators/collective/world.h).
RanksPtr join_ranks(double timeout = 0);

// For runs without data: ranks of which there is only the number, this process being the first of so many; null for
// one. From then on common worlds that nets make without data have as many. Throws Error in a build without MPI.
RanksPtr claim_ranks(int size);

}  // namespace stepnet
