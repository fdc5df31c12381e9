// gpu/runtime/launch.h's teams for work that is queued when its operator's call is over, as gpu/runtime/timesteps.h has
// it. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/runtime/launch.h"

namespace stepnet::gpu {

template <class Fn>
void each_team(int device, size_t count, Fn fn) {
  if (count == 0) return;
  const DeviceScope scope(device);
  const cudaStream_t stream = current_stream(device);
  launch(teams_kernel<Fn>, static_cast<unsigned>(std::min<size_t>(count, kMaxBlocks)), kTeam, stream, count, fn);
  check_launch(stream);
}

}  // namespace stepnet::gpu
