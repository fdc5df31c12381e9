#include "recurrent/distributed/join_ranks.h"

#if defined(STEPNET_MPI)
#include "recurrent/distributed/world_ranks.h"
#endif

namespace stepnet {

RanksPtr join_ranks() {
#if defined(STEPNET_MPI)
  return ranks_of(create_world(default_world_timeout()));
#else
  return nullptr;
#endif
}

}  // namespace stepnet
