// The ranks that mpirun has started, for programs that train. Threads: one thread at a time. Errors: Error if MPI
// cannot be loaded, or if others do not come in time.
#pragma once

#include "recurrent/train/ranks.h"

namespace stepnet {

// The processes that were started together; null for one process alone, and in a build without MPI.
RanksPtr join_ranks();

}  // namespace stepnet
