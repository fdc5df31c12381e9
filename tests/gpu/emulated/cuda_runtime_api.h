// What the imitated runtime tells of its devices: an identity, which is another one in each process, unless the
// environment variable STEPNET_EMULATED_SHARED is set. Threads: pure functions.
#pragma once

#include <cuda_runtime.h>

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  cudaUUID_t uuid;
};

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
