// How many threads the ranks of a machine have, which share its cores. Threads: one thread at a time. Errors: those of
// the ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recurrent/train/ranks.h"

namespace stepnet {

// A rank's share of the cores that those of its machine may use; one at least.
int threads_of(const Ranks& ranks);

// What a rank says of its machine, and of itself.
struct RankLoad {
  int ranks = 1, cores = 1;  // of the machine
  int threads = 1;
};

// A sentence about the machine that has the most threads for each of its cores, if that is more than one; else "".
std::string crowding(const std::vector<RankLoad>& loads);
// The same, on each of the ranks, all of which must call it, with its number of threads.
std::string crowding(const Ranks& ranks, int threads);

}  // namespace stepnet
