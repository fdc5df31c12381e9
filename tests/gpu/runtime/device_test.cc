// Devices, streams, events and memory of gpu/. What needs a GPU is skipped, and says so, where there is none.
#include "gpu/runtime/device.h"

#include <gtest/gtest.h>

#include <limits>

#include "stepnet/tensor.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::device_test {
namespace {

TEST(GpuDevice, IsOfferedWhereTheMachineHasOne) {
  EXPECT_EQ(device_offered(DeviceKind::cuda), gpu::device_count() > 0);
}

TEST(GpuDevice, ADeviceThatIsNotThereIsAClearError) {
  const Device beyond{DeviceKind::cuda, 99};
  const std::string text = error_of([&] { Tensor::zeros(DType::float32, {2}, beyond); });
  EXPECT_NE(text.find("there is no device cuda:99: this machine has"), text.npos) << text;
}

TEST(GpuDevice, WithoutAGpuEveryDeviceIsAClearError) {
  if (gpu::device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const std::string text = error_of([&] { Tensor::zeros(DType::float32, {2}, kGpu); });
  EXPECT_NE(text.find("there is no device cuda:0: this machine has 0 usable CUDA devices"), text.npos) << text;
  EXPECT_NE(text.find("fix run on the CPU"), text.npos) << text;
}

TEST(GpuDevice, AFailedCallNamesItselfAndItsPlace) {
  const std::string text = error_of([&] { gpu::check(cudaErrorInvalidValue); });
  EXPECT_NE(text.find("CUDA: invalid argument (cudaErrorInvalidValue)"), text.npos) << text;
  EXPECT_NE(text.find("tests/gpu/runtime/device_test.cc:"), text.npos) << text;
}

TEST_F(GpuTest, MemoryIsCountedAndCopied) {
  Allocator& memory = allocator(kGpu);
  memory.reset_peak();
  const MemoryCounters before = memory.counters();
  const float values[] = {1, 2, 3};
  float back[3] = {};
  void* a = memory.allocate(sizeof(values));
  void* b = memory.allocate(sizeof(values));
  memory.copy_from_host(a, values, sizeof(values));
  memory.copy_within(b, a, sizeof(values));
  memory.copy_to_host(back, b, sizeof(values));
  EXPECT_EQ(std::vector<float>(back, back + 3), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(memory.counters().live - before.live, 1024);
  memory.release(a, sizeof(values));
  memory.release(b, sizeof(values));
  EXPECT_EQ(memory.counters().live, before.live);
  EXPECT_EQ(memory.counters().peak - before.live, 1024);
  EXPECT_EQ(memory.counters().allocations - before.allocations, 2);
  EXPECT_EQ(memory.allocate(0), nullptr);
}

TEST_F(GpuTest, OutOfMemorySaysHowMuchWasAskedFor) {
  const size_t bytes = size_t{1} << 50;
  const std::string text = error_of([&] { allocator(kGpu).allocate(bytes); });
  EXPECT_NE(text.find("cuda:0: out of memory: 1125899906842624 bytes were asked for"), text.npos) << text;
}

TEST_F(GpuTest, ATensorMovesThereAndBack) {
  const Tensor host = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  Tensor there = Tensor::zeros(DType::float32, {2, 2}, kGpu);
  there.copy_from(host);
  EXPECT_EQ(there.device(), kGpu);
  EXPECT_NE(error_of([&] { there.data<float>(); }).find("is on cuda:0"), std::string::npos);
  Tensor back;
  back.resize(DType::float32, {2, 2});
  back.copy_from(there);
  EXPECT_EQ(compare(back, host, 0), "");
}

TEST_F(GpuTest, ScopesGiveTheDeviceBack) {
  const auto current = [] {
    int device = -1;
    gpu::check(cudaGetDevice(&device));
    return device;
  };
  const int last = gpu::device_count() - 1;  // the first, too, where there is one
  {
    const gpu::DeviceScope outer(last);
    {
      const gpu::DeviceScope same(last);
      EXPECT_EQ(current(), last);
      {
        const gpu::DeviceScope inner(0);
        EXPECT_EQ(current(), 0);
      }
      EXPECT_EQ(current(), last);
    }
    EXPECT_EQ(current(), last);
  }
  EXPECT_EQ(current(), 0);
}

TEST_F(GpuTest, EventsOrderStreams) {
  gpu::Stream first, second;
  gpu::Event start(true), end(true);
  start.record(first.get());
  second.wait_for(start);
  end.record(second.get());
  end.wait();
  EXPECT_GE(end.milliseconds_since(start), 0);
}

}  // namespace
}  // namespace stepnet::testing::device_test
