// Which GPU a device is, among those of all machines. Threads: a pure function. Errors: Error if there is no such
// device.
#pragma once

#include <array>

namespace stepnet::gpu {

using GpuId = std::array<char, 16>;  // CUDA's UUID
GpuId gpu_id(int device);

}  // namespace stepnet::gpu
