// What the tests of gpu/collective share: the GPU of each rank, and tests that need GPUs and NCCL. Threads: one thread
// at a time.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "gpu/runtime/device.h"
#include "tests/operators/collective/ranks.h"

namespace stepnet::testing {

inline bool has_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library) dlclose(library);
  return library != nullptr;
}

class GpuRanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu::device_count() == 0) GTEST_SKIP() << "this machine has no usable GPU";
    if (!has_nccl()) GTEST_SKIP() << "this machine has no NCCL";
  }
};

// The ranks of a machine have its GPUs in turn.
inline Device own_gpu() {
  const int gpus = count_gpus();
  const int index = gpus > 0 ? shared_world().machine().place % gpus : 0;
  return {DeviceKind::cuda, static_cast<int8_t>(index)};
}

}  // namespace stepnet::testing
