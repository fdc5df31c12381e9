// What the imitated runtime tells of its devices: what they are, the same for all, and an identity, which is another
// one in each process, unless the environment variable STEPNET_EMULATED_SHARED is set. Threads: pure functions.
#pragma once

#include <cuda_runtime.h>

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  int major, minor, multiProcessorCount;
};

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
