#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  const int process = std::getenv("STEPNET_EMULATED_SHARED") ? 0 : static_cast<int>(getpid());
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "imitated");
  properties->major = 9;
  properties->multiProcessorCount = 1;
  std::snprintf(properties->uuid.bytes, sizeof(properties->uuid.bytes), "%d %d", device, process);
  return cudaSuccess;
}
