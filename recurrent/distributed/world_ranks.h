// Ranks on a common world (operators/collective/world.h). Threads and errors: see recurrent/train/ranks.h.
#pragma once

#include "operators/collective/world.h"
#include "recurrent/train/ranks.h"

namespace stepnet {

// Null for a world of one rank.
RanksPtr ranks_of(WorldPtr world);

}  // namespace stepnet
