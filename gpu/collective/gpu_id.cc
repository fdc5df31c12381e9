#include "gpu/collective/gpu_id.h"

#include <cuda_runtime_api.h>

#include "gpu/runtime/device.h"

namespace stepnet::gpu {

GpuId gpu_id(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device));
  return std::to_array(properties.uuid.bytes);
}

}  // namespace stepnet::gpu
