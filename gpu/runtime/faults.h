// Bad values that a kernel finds in data, such as an index that is too large: the kernel notes the first one and goes
// on without it, and the next point where the host waits throws an Error that names the operator.
//
//   void forward(Call& call, gpu::In<float> x, gpu::In<int32_t> indices, gpu::Out<float> y) {
//     const gpu::Bounds bounds = gpu::bounds(call, "an index");
//     gpu::each(call, y.size, [=] __device__(size_t i) {
//       if (bounds.inside(indices[i], rows)) ...
//
// What a launch itself reports is here, too. Threads: all may be called from several threads.
#pragma once

#include <cstdint>

#include "gpu/runtime/device.h"

namespace stepnet::gpu {

// The limit of a value that is wrong by itself, such as a divisor of 0.
constexpr int64_t kNoLimit = -1;

// In host memory that the device writes. `launch` is 0 as long as nothing was found.
struct Fault {
  unsigned long long launch = 0;
  long long value = 0, limit = 0;
};

// A kernel's way to say so, copied into it by value.
struct Bounds {
  Fault* fault = nullptr;
  unsigned long long launch = 0;
  int* claim = nullptr;  // on the device: 0 as long as nobody writes to `fault`, as atomics on host memory may not work

  // 0 <= value < limit; if not, it is noted.
  __host__ __device__ bool inside(int64_t value, int64_t limit) const {
    if (value >= 0 && value < limit) return true;
    report(value, limit);
    return false;
  }
  __host__ __device__ void report(int64_t value, int64_t limit) const {
#if defined(__CUDA_ARCH__)
    if (atomicCAS(claim, 0, 1) != 0) return;
    fault->value = value;
    fault->limit = limit;
    __threadfence_system();
    *static_cast<volatile unsigned long long*>(&fault->launch) = launch;
#else
    if (fault->launch != 0) return;
    *fault = {launch, value, limit};
#endif
  }
};

// For the operator that is running on this device. `what`: a text that lives on: "an index", "a label".
Bounds bounds(int device, const char* what);

// If on, every launch is waited for, so that a kernel that fails is told from those behind it. Off at first.
void wait_for_launches(bool on);
// Throws Error if what was launched last on the stream could not be, or if it is waited for and failed.
void check_launch(cudaStream_t stream);

// Throws Error if a kernel that is done has noted something, and forgets it. Called where the host waits.
void raise_faults(int device);

}  // namespace stepnet::gpu
