#include "recurrent/distributed/join_ranks.h"

#if defined(STEPNET_MPI)
#include "recurrent/distributed/world_ranks.h"
#else
#include <array>
#include <cstdlib>

#include "stepnet/error.h"
#endif

namespace stepnet {

#if defined(STEPNET_MPI)

RanksPtr join_ranks(double timeout) {
  if (timeout > 0) set_default_world_timeout(Seconds(timeout));
  return ranks_of(create_world(default_world_timeout()));
}

RanksPtr claim_ranks(int size) {
  claim_world_size(size);
  return ranks_of(create_local_world(size));
}

#else

namespace {

constexpr const char* kNoMpi = "build with MPI: see -DSTEPNET_MPI in docs/building.md";

}  // namespace

// Processes that know nothing of each other would all train all of it, and write to one folder.
RanksPtr join_ranks(double) {
  const std::array names = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
  for (const char* name : names)
    if (const char* text = std::getenv(name); text && std::atoi(text) > 1)
      throw Error(fmt::format("{} processes have been started together, but this build has no MPI", std::atoi(text)),
                  kNoMpi);
  return nullptr;
}

RanksPtr claim_ranks(int size) {
  if (size > 1) throw Error(fmt::format("{} ranks are asked for, but this build has no MPI", size), kNoMpi);
  return nullptr;
}

#endif

}  // namespace stepnet
