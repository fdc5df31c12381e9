// What executors ask of a GPU: graphs of captured work.
#include "core/compute/backend.h"

#include <stdexcept>

#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::backend_test {
namespace {

constexpr int64_t kLarge = int64_t{4} << 20;  // elements; a segment of its own

class GpuBackend : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) gpu::drop_cached(0);
  }
};

TEST_F(GpuBackend, AGraphRunsAgain) {
  Backend& work = backend(DeviceKind::cuda);
  const Tensor x = on_gpu(Tensor::of<float>({2}, {1, 2}));
  Tensor y = on_gpu(Tensor::of<float>({2}, {0, 0}));
  const auto graph = work.capture(kGpu, [&] {
    Tensor between = x.clone();
    y.copy_from(between);
  });
  EXPECT_EQ(compare(copied_to(y, {}), Tensor::of<float>({2}, {0, 0}), 0), "");
  graph->replay();
  EXPECT_EQ(compare(copied_to(y, {}), Tensor::of<float>({2}, {1, 2}), 0), "");
}

// Neither memory nor streams stay behind.
TEST_F(GpuBackend, ACaptureThatFailsGivesItsMemoryBack) {
  Backend& work = backend(DeviceKind::cuda);
  const size_t before = gpu::reserved_bytes(0);
  int stream = -1;
  for (int i = 0; i < 3; ++i) {
    const auto fails = [&] {
      const int here = work.current_stream(kGpu);
      EXPECT_TRUE(stream < 0 || stream == here) << stream << ", " << here;
      stream = here;
      Tensor t = Tensor::empty(DType::float32, {kLarge}, kGpu);
      t.fill_zero();
      throw std::runtime_error("no");
    };
    EXPECT_THROW(work.capture(kGpu, fails), std::runtime_error);
    EXPECT_EQ(gpu::current_stream(0), gpu::main_stream(0));
  }
  gpu::drop_cached(0);
  EXPECT_EQ(gpu::reserved_bytes(0), before);
}

// What is queued on the main stream later waits for the graph, where it gets the graph's memory.
TEST_F(GpuBackend, AGraphOnAnotherStreamHasItsMemoryUntilItIsDone) {
  Backend& work = backend(DeviceKind::cuda);
  const Tensor x = on_gpu(normal<float>({kLarge}, 1));
  Tensor y = Tensor::empty(DType::float32, {kLarge}, kGpu);
  const void* within = nullptr;
  auto graph = work.capture(kGpu, [&] {
    const Tensor between = x.clone();
    within = between.raw();
    y.copy_from(between);
  });
  copied_to(x, {});
  work.set_stream(kGpu, work.side_stream(kGpu, 0));
  graph->replay();
  work.set_stream(kGpu, 0);
  graph.reset();
  Tensor next = Tensor::empty(DType::float32, {kLarge}, kGpu);
  ASSERT_EQ(std::as_const(next).raw(), within);
  next.fill_zero();
  copied_to(next, {});
  work.set_stream(kGpu, work.side_stream(kGpu, 0));
  const Tensor result = copied_to(y, {});
  work.set_stream(kGpu, 0);
  EXPECT_EQ(compare(result, copied_to(x, {}), 0), "");
  Tensor zeros = Tensor::empty(DType::float32, {kLarge});
  zeros.fill_zero();
  EXPECT_EQ(compare(copied_to(next, {}), zeros, 0), "");
}

// Also if one of them fails: what the others have queued goes on.
TEST_F(GpuBackend, BranchesAreWaitedFor) {
  Backend& work = backend(DeviceKind::cuda);
  const Tensor x = on_gpu(Tensor::of<float>({2}, {1, 2}));
  Tensor y = on_gpu(Tensor::of<float>({2}, {0, 0}));
  const auto branch = [&](int i) {
    if (i == 1) throw std::runtime_error("no");
    y.copy_from(x);
  };
  EXPECT_THROW(work.branches(kGpu, 2, branch), std::runtime_error);
  EXPECT_EQ(compare(copied_to(y, {}), Tensor::of<float>({2}, {1, 2}), 0), "");
}

TEST_F(GpuBackend, EventsOrderStreams) {
  Backend& work = backend(DeviceKind::cuda);
  const int side = work.side_stream(kGpu, 0);
  EXPECT_EQ(work.side_stream(kGpu, 0), side);
  EXPECT_NE(work.side_stream(kGpu, 1), side);
  const auto event = work.event(kGpu);
  Tensor x = on_gpu(Tensor::of<float>({2}, {1, 2})), y = on_gpu(Tensor::of<float>({2}, {0, 0}));
  for (const float value : {3.0f, 4.0f}) {
    work.set_stream(kGpu, side);
    x.copy_from(on_gpu(Tensor::of<float>({2}, {value, value})));
    event->record();
    work.set_stream(kGpu, 0);
    event->wait();
    y.copy_from(x);
    EXPECT_EQ(compare(copied_to(y, {}), Tensor::of<float>({2}, {value, value}), 0), "");
  }
}

}  // namespace
}  // namespace stepnet::testing::backend_test
