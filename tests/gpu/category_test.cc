// What GPU memory is for, as the allocator counts it, and what tools ask of a device.
#include "gpu/runtime/device.h"
#include "stepnet/device.h"

#include "core/compute/backend.h"
#include "gpu/loops/matmul.h"
#include "stepnet/arguments.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::category_test {
namespace {

CategoryBytes bytes_of(MemoryCategory category) { return memory_by_category(kGpu)[static_cast<size_t>(category)]; }

TEST_F(GpuTest, BlocksAreCountedByCategory) {
  const MemoryByCategory before = memory_by_category(kGpu);
  allocator(kGpu).reset_peak();
  {
    const Tensor value = Tensor::empty(DType::uint8, {100}, kGpu);
    Tensor reserve, workspace;
    {
      const MemoryScope scope(MemoryCategory::reserve);
      reserve = Tensor::empty(DType::uint8, {1000}, kGpu);
      const MemoryScope inner(MemoryCategory::workspace);
      workspace = Tensor::empty(DType::uint8, {2000}, kGpu);
    }
    EXPECT_EQ(MemoryScope::now(), MemoryCategory::value);
    EXPECT_EQ(bytes_of(MemoryCategory::value).live, before[0].live + 512);
    EXPECT_EQ(bytes_of(MemoryCategory::reserve).live, before[1].live + 1024);
    EXPECT_EQ(bytes_of(MemoryCategory::workspace).live, before[2].live + 2048);
    const MemoryScope other(MemoryCategory::workspace);  // of what is released does not matter
    reserve = Tensor();
    EXPECT_EQ(bytes_of(MemoryCategory::reserve), (CategoryBytes{before[1].live, before[1].live + 1024}));
  }
  EXPECT_EQ(bytes_of(MemoryCategory::value).live, before[0].live);
  EXPECT_EQ(bytes_of(MemoryCategory::workspace).live, before[2].live);
  int64_t live = 0;
  for (const CategoryBytes& counted : memory_by_category(kGpu)) live += counted.live;
  EXPECT_EQ(live, allocator(kGpu).counters().live);
  allocator(kGpu).reset_peak();
  EXPECT_EQ(bytes_of(MemoryCategory::reserve).peak, before[1].live);
}

TEST_F(GpuTest, AReserveOfRecurrentIsOne) {
  Workspace blobs;
  NetDef net;
  *net.add_op() = make_op("Recurrent", {"X", "", "", "weights"}, {"Y", "h", "c", "scratch", "states"},
                          {make_arg("hidden_size", 3), make_arg("num_layers", 1), make_arg("rnn_mode", "lstm"),
                           make_arg("input_mode", "linear")});
  net.mutable_op(0)->mutable_device_option()->set_device_type(CUDA);
  blobs.tensor("X") = on_gpu(normal<float>({4, 2, 2}, 1));
  blobs.tensor("weights") = on_gpu(normal<float>({4 * 3 * (2 + 3 + 2)}, 2));
  allocator(kGpu).reset_peak();
  const MemoryByCategory before = memory_by_category(kGpu);
  RunContext run;
  run_net_once(net, blobs, run);
  EXPECT_EQ(bytes_of(MemoryCategory::reserve).live - before[1].live,
            static_cast<int64_t>(block_bytes(DeviceKind::cuda, blobs.fetch("scratch").bytes())));
  EXPECT_GT(bytes_of(MemoryCategory::workspace).peak, before[2].live);
}

TEST_F(GpuTest, TimesAreOfTheDevice) {
  Backend& work = backend(DeviceKind::cuda);
  Tensor t = Tensor::zeros(DType::float32, {1 << 20}, kGpu);
  const double none = work.milliseconds(kGpu, [] {}), some = work.milliseconds(kGpu, [&] {
    for (int i = 0; i < 20; ++i) t.fill_zero();
  });
  EXPECT_GE(none, 0);
  EXPECT_GT(some, 0);
  EXPECT_NE(error_of([&] { work.milliseconds(kGpu, [] { fail("no work"); }); }).find("no work"), std::string::npos);
}

TEST_F(GpuTest, Tf32IsAllowedThroughTheDevicesWork) {
  EXPECT_FALSE(gpu::tf32_allowed());
  backend(DeviceKind::cuda).allow_tf32(true);
  EXPECT_TRUE(gpu::tf32_allowed());
  backend(DeviceKind::cuda).allow_tf32(false);
  EXPECT_FALSE(gpu::tf32_allowed());
}

TEST(MemoryCategories, OfTheCpuAreValues) {
  const MemoryCounters all = allocator(Device{}).counters();
  EXPECT_EQ(memory_by_category({})[0].live, all.live);
  EXPECT_EQ(memory_by_category({})[2], CategoryBytes{});
}

}  // namespace
}  // namespace stepnet::testing::category_test
