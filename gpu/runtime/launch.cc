#include <atomic>

#include "gpu/runtime/faults.h"
#include "gpu/runtime/stream.h"

namespace stepnet::gpu {
namespace {
std::atomic<bool> waits{false};
}  // namespace

void wait_for_launches(bool on) { waits = on; }

void check_launch(cudaStream_t stream) {
  check(cudaGetLastError());
  if (!waits) return;
  check(cudaStreamSynchronize(stream));
  int device = 0;
  check(cudaGetDevice(&device));
  raise_faults(device);
}

}  // namespace stepnet::gpu
