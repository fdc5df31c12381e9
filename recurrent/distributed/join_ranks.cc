#include "recurrent/distributed/join_ranks.h"

#include "core/compute/launcher.h"
#include "stepnet/error.h"
#if defined(STEPNET_MPI)
#include "recurrent/distributed/world_ranks.h"
#endif

namespace stepnet {

#if defined(STEPNET_MPI)

RanksPtr join_ranks(double timeout) {
  if (timeout > 0) set_default_world_timeout(Seconds(timeout));
  return ranks_of(create_world(default_world_timeout()));
}

Device gpu_of(const Ranks& ranks) {
  const int gpus = count_gpus();
  require(gpus > 0, "rank {} of {} has no GPU", ranks.rank(), ranks.size());
  return {DeviceKind::cuda, static_cast<int8_t>(ranks.place_here() % gpus)};
}

RanksPtr ranks_on(RanksPtr ranks, Device device) {
  if (!ranks) return ranks;
  const bool on_gpu = device.kind != DeviceKind::cpu;
  const double with_gpu = ranks->sum({on_gpu ? 1.0 : 0.0})[0];
  if (with_gpu > 0 && with_gpu < ranks->size())
    throw Error(fmt::format("{} of {} ranks would train on a GPU, and the others on the CPU; this one, rank {}, on {}",
                            with_gpu, ranks->size(), ranks->rank(), device),
                "train with --device cpu, or start ranks only where there are GPUs");
  return on_gpu ? ranks_of(create_gpu_world(device, default_world_timeout())) : ranks;
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
  if (const Launched launched = launched_together(); launched.processes > 1)
    throw Error(fmt::format("{} processes have been started together ({} says so), but this build has no MPI",
                            launched.processes, launched.variable),
                kNoMpi);
  return nullptr;
}

// There are no ranks that could ask for it.
Device gpu_of(const Ranks&) { throw Error("ranks have no GPUs", kNoMpi); }
RanksPtr ranks_on(RanksPtr ranks, Device) { return ranks; }

RanksPtr claim_ranks(int size) {
  if (size > 1) throw Error(fmt::format("{} ranks are asked for, but this build has no MPI", size), kNoMpi);
  return nullptr;
}

#endif

}  // namespace stepnet
