// What tests on a GPU share: they are skipped, and say so, where there is none.
#pragma once

#include "gpu/runtime/device.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu::device_count() == 0) GTEST_SKIP() << "this machine has no usable GPU";
  }
};

constexpr Device kGpu{DeviceKind::cuda, 0};

// Returns a copy on the GPU.
Tensor on_gpu(const Tensor& t);

// Runs the operator on a GPU, in a workspace of its own, and returns copies of its outputs in order on the CPU.
std::vector<Tensor> run_op_on_gpu(OperatorDef def, const Feeds& feeds);

// The operator with the same inputs on the CPU and on the GPU, by nets in workspaces of their own: returns "" or the
// first output that differs by more than `tol`. That many elements of the outputs must be NaN, on both in the same
// places.
std::string compare_devices(OperatorDef def, const Feeds& feeds, double tol, int64_t nans = 0);

}  // namespace stepnet::testing
