// Streams, and memory that goes from one to another. The imitated device runs what is queued only when somebody waits,
// and before it only what events order before it: there, a wait that is missing is a wrong value here.
#include "gpu/runtime/memory.h"

#include <algorithm>
#include <set>
#include <thread>

#include "gpu/runtime/stream.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::memory_test {
namespace {

constexpr size_t kBytes = size_t{12} << 20;  // a segment of its own

// The stream is never destroyed: the allocator may hold memory that was used on it.
class GpuMemory : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) gpu::drop_cached(0);
  }
  static cudaStream_t side() {
    static const gpu::Stream& stream = *new gpu::Stream;
    return stream.get();
  }
  static void* allocate() { return allocator(kGpu).allocate(kBytes); }
  static void release(void* data) { allocator(kGpu).release(data, kBytes); }
  static void fill(void* data, int value, cudaStream_t stream) {
    gpu::check(cudaMemsetAsync(data, value, kBytes, stream));
  }
  static void fetch(const gpu::PinnedBytes& to, const void* data, cudaStream_t stream) {
    gpu::check(cudaMemcpyAsync(to.data(), data, kBytes, cudaMemcpyDeviceToHost, stream));
  }
  static void wait(cudaStream_t stream) { gpu::check(cudaStreamSynchronize(stream)); }
};

// What all bytes are; -1 if they differ.
int value_of(const gpu::PinnedBytes& bytes) {
  const std::byte first = *bytes.data();
  const bool same = std::all_of(bytes.data(), bytes.data() + bytes.size(), [&](std::byte b) { return b == first; });
  return same ? static_cast<int>(first) : -1;
}

template <class Fn>
void in_another_thread(const Fn& fn) {
  std::thread thread(fn);
  thread.join();
}

TEST_F(GpuMemory, CurrentStreamsAreOfAThread) {
  const cudaStream_t main = gpu::main_stream(0);
  EXPECT_EQ(gpu::current_stream(0), main);
  {
    const gpu::StreamScope scope(0, side());
    EXPECT_EQ(gpu::current_stream(0), side());
    in_another_thread([&] { EXPECT_EQ(gpu::current_stream(0), main); });
    {
      const gpu::StreamScope inner(0, main);
      EXPECT_EQ(gpu::current_stream(0), main);
    }
    EXPECT_EQ(gpu::current_stream(0), side());
  }
  EXPECT_EQ(gpu::current_stream(0), main);
}

TEST_F(GpuMemory, StreamsOfDevicesThatAreNotThereAreErrors) {
  EXPECT_NE(error_of([] { gpu::main_stream(99); }).find("there is no device cuda:99"), std::string::npos);
  EXPECT_NE(error_of([] { gpu::current_stream(-1); }).find("-1 is no GPU's index"), std::string::npos);
  EXPECT_NE(error_of([] { gpu::current_stream(128); }).find("128 is no GPU's index"), std::string::npos);
}

TEST_F(GpuMemory, AScopeWaitsForWhatWasQueuedBeforeAndIsWaitedFor) {
  const gpu::PinnedBytes inside(kBytes), behind(kBytes);
  void* data = allocate();
  fill(data, 1, gpu::current_stream(0));
  {
    const gpu::StreamScope scope(0, side());
    fetch(inside, data, gpu::current_stream(0));
    wait(side());
    EXPECT_EQ(value_of(inside), 1);
    fill(data, 2, gpu::current_stream(0));
  }
  fetch(behind, data, gpu::current_stream(0));
  wait(gpu::current_stream(0));
  EXPECT_EQ(value_of(behind), 2);
  release(data);
}

TEST_F(GpuMemory, ABlockOfOneStreamIsReusedOnAnotherBehindItsWork) {
  const gpu::PinnedBytes seen(kBytes);
  const gpu::StreamScope scope(0, side());
  void* first = nullptr;
  in_another_thread([&] {  // on the main stream
    first = allocate();
    fill(first, 1, gpu::current_stream(0));
    release(first);
  });
  void* second = allocate();
  ASSERT_EQ(second, first);
  fill(second, 2, side());
  wait(side());
  wait(gpu::main_stream(0));
  fetch(seen, second, side());
  wait(side());
  EXPECT_EQ(value_of(seen), 2);
  release(second);
}

TEST_F(GpuMemory, AReleasedBlockWaitsForTheStreamsThatUseIt) {
  const gpu::PinnedBytes seen(kBytes);
  const cudaStream_t main = gpu::current_stream(0);
  void* first = allocate();
  fill(first, 3, main);
  gpu::wait_for(0, side(), main);
  fetch(seen, first, side());
  gpu::record_use(0, first, side());
  release(first);
  void* second = allocate();
  ASSERT_EQ(second, first);
  fill(second, 4, main);
  wait(main);
  wait(side());
  EXPECT_EQ(value_of(seen), 3);
  release(second);
}

// Also where they touch a part of it, as a collective operation on rows of a tensor does.
TEST_F(GpuMemory, AReleasedBlockWaitsForTheStreamsThatUseAPartOfIt) {
  const gpu::PinnedBytes seen(kBytes);
  const cudaStream_t main = gpu::current_stream(0);
  void* first = allocate();
  fill(first, 3, main);
  gpu::wait_for(0, side(), main);
  fetch(seen, first, side());
  gpu::record_use(0, static_cast<std::byte*>(first) + kBytes / 2, side());
  release(first);
  void* second = allocate();
  ASSERT_EQ(second, first);
  fill(second, 4, main);
  wait(main);
  wait(side());
  EXPECT_EQ(value_of(seen), 3);
  release(second);
}

// What was queued on a stream that is gone comes before what its memory is used for next.
TEST_F(GpuMemory, StreamsThatAreGoneAreForgotten) {
  const gpu::PinnedBytes of_freed(kBytes), of_read(kBytes);
  void *read = allocate(), *freed = nullptr;
  fill(read, 1, gpu::current_stream(0));
  int number = 0;
  {
    const gpu::Stream gone;
    number = gpu::stream_number(0, gone.get());
    const gpu::StreamScope scope(0, gone.get());
    freed = allocate();
    fill(freed, 2, gone.get());
    fetch(of_freed, freed, gone.get());
    release(freed);
    fetch(of_read, read, gone.get());
    gpu::record_use(0, read, gone.get());
  }
  EXPECT_EQ(gpu::stream_of_number(0, number), gpu::main_stream(0));
  release(read);
  void *first = allocate(), *second = allocate();
  EXPECT_EQ(std::set<void*>({first, second}), std::set<void*>({read, freed}));
  fill(first, 3, gpu::current_stream(0));
  fill(second, 3, gpu::current_stream(0));
  wait(gpu::current_stream(0));
  EXPECT_EQ(value_of(of_freed), 2);
  EXPECT_EQ(value_of(of_read), 1);
  release(first);
  release(second);
}

TEST_F(GpuMemory, StreamsThatAreKeptApartTakeNewMemory) {
  void* first = allocate();
  release(first);
  const gpu::StreamScope scope(0, side());
  EXPECT_FALSE(gpu::keep_apart(true));
  void* second = allocate();
  EXPECT_TRUE(gpu::keep_apart(false));
  void* third = allocate();
  EXPECT_NE(second, first);
  EXPECT_EQ(third, first);
  release(second);
  release(third);
}

TEST_F(GpuMemory, UsesThatMeanNothingAreIgnored) {
  void* data = allocate();
  gpu::record_use(0, data, gpu::current_stream(0));
  gpu::record_use(0, nullptr, side());
  gpu::record_use(0, &data, side());
  release(data);
  allocator(kGpu).release(nullptr, 0);
}

TEST_F(GpuMemory, BytesAreKeptUntilTheyAreDropped) {
  const size_t before = gpu::reserved_bytes(0);
  void* data = allocate();
  EXPECT_EQ(gpu::reserved_bytes(0), before + kBytes);
  gpu::drop_cached(0);
  EXPECT_EQ(gpu::reserved_bytes(0), before + kBytes);
  release(data);
  EXPECT_EQ(gpu::reserved_bytes(0), before + kBytes);
  gpu::drop_cached(0);
  EXPECT_EQ(gpu::reserved_bytes(0), before);
}

TEST_F(GpuMemory, OutOfMemoryLeavesAllAsItWas) {
  Allocator& memory = allocator(kGpu);
  void* data = allocate();
  const MemoryCounters before = memory.counters();
  const std::string text = error_of([&] { memory.allocate(size_t{1} << 50); });
  EXPECT_NE(text.find(" are free, " + std::to_string(before.live) + " are live here, the peak was "), text.npos)
      << text;
  EXPECT_NE(text.find("fix use a smaller batch or fewer timesteps"), text.npos) << text;
  EXPECT_EQ(memory.counters().live, before.live);
  EXPECT_EQ(memory.counters().allocations, before.allocations);
  const gpu::PinnedBytes seen(kBytes);
  fill(data, 5, gpu::current_stream(0));
  fetch(seen, data, gpu::current_stream(0));
  memory.synchronize();
  EXPECT_EQ(value_of(seen), 5);
  release(data);
}

TEST_F(GpuMemory, EachDeviceHasItsOwn) {
  if (gpu::device_count() < 2) GTEST_SKIP() << "this machine has one GPU";
  constexpr Device second{DeviceKind::cuda, 1};
  EXPECT_NE(gpu::main_stream(0), gpu::main_stream(1));
  const int64_t live = allocator(kGpu).counters().live;
  const Tensor there = copied_to(Tensor::of<float>({2}, {1, 2}), second);
  EXPECT_EQ(allocator(kGpu).counters().live, live);
  EXPECT_EQ(compare(copied_to(there, {}), Tensor::of<float>({2}, {1, 2}), 0), "");
}

// Whichever of the two streams is waited for first: the copy stands behind what made the bytes and before what changes
// them.
TEST_F(GpuMemory, CopiesBetweenDevicesAreInTheOrderOfBothStreams) {
  if (gpu::device_count() < 2) GTEST_SKIP() << "this machine has one GPU";
  Allocator& other = allocator({DeviceKind::cuda, 1});
  for (const bool first_is_source : {true, false}) {
    const gpu::StreamScope scope(0, side());
    const gpu::PinnedBytes seen(kBytes);
    void *from = allocate(), *to = other.allocate(kBytes);
    fill(from, 1, side());
    wait(side());
    fill(from, 2, side());
    other.copy_within(to, from, kBytes);
    fill(from, 3, side());
    if (first_is_source) wait(side());
    fetch(seen, to, gpu::current_stream(1));
    wait(gpu::current_stream(1));
    EXPECT_EQ(value_of(seen), 2) << first_is_source;
    release(from);
    other.release(to, kBytes);
  }
}

}  // namespace
}  // namespace stepnet::testing::memory_test
