#include "gpu/runtime/memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/runtime/block_cache.h"
#include "gpu/runtime/faults.h"
#include "gpu/runtime/stream.h"
#include "stepnet/error.h"
#include "stepnet/operator.h"

namespace stepnet::gpu {
namespace {

thread_local const void* pool_here = nullptr;  // see PoolScope
thread_local bool apart_here = false;          // see keep_apart

// While one is alive, the calling thread may take memory from the driver and give it back, although it is capturing:
// none of that is part of the graph.
class OutsideOfCapture {
 public:
  OutsideOfCapture() { exchange(); }
  ~OutsideOfCapture() { exchange(); }
  OutsideOfCapture(const OutsideOfCapture&) = delete;
  OutsideOfCapture& operator=(const OutsideOfCapture&) = delete;

 private:
  void exchange() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

int device_of_address(const void* at, int otherwise);

class CudaAllocator : public Allocator, public CountsCategories {
 public:
  explicit CudaAllocator(int index) : index_(index) {}

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    require(bytes <= SIZE_MAX / 2, "{} bytes of memory were asked for", bytes);
    const size_t size = block_bytes(DeviceKind::cuda, bytes);
    cudaStream_t stream = current_stream(index_);
    const DeviceScope scope(index_);
    const std::lock_guard lock(mutex_);
    Block* block = take(size, stream);
    block->category = MemoryScope::now();
    categories_.add(block->category, static_cast<int64_t>(size));
    counters_.live += static_cast<int64_t>(size);
    counters_.peak = std::max(counters_.peak, counters_.live);
    ++counters_.allocations;
    return block->data;
  }

  // What was queued on other streams is waited for, on the device, by whoever gets the bytes next. A failure at the end
  // of the process, when there may be no driver any more, is of no use to anyone.
  void release(void* data, size_t bytes) noexcept override {
    if (!data) return;
    try {
      const std::lock_guard lock(mutex_);
      counters_.live -= static_cast<int64_t>(block_bytes(DeviceKind::cuda, bytes));
      Block* block = cache_.find(static_cast<std::byte*>(data));
      if (!block) return;
      categories_.add(block->category, -static_cast<int64_t>(block_bytes(DeviceKind::cuda, bytes)));
      cache_.give_back(block->data, fences_of(*block));
    } catch (const Error&) {
    }
  }

  MemoryCounters counters() const override {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    counters_.peak = counters_.live;
    categories_.reset_peaks();
  }
  MemoryByCategory categories() const override { return categories_.bytes(); }

  void copy_from_host(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
    if (bytes > 0) synchronize();
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
    synchronize();  // also for no bytes: whoever made them may have something to say
  }
  // Bytes of another device: its current stream has made them, and may change them only behind the copy.
  void copy_within(void* to, const void* from, size_t bytes) override {
    const int source = device_of_address(from, index_);
    if (source == index_) return copy(to, from, bytes, cudaMemcpyDeviceToDevice);
    wait_for(source, current_stream(index_), current_stream(source));
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
    wait_for(index_, current_stream(source), current_stream(index_));
  }
  void fill_zero(void* to, size_t bytes) override {
    if (bytes == 0) return;
    const DeviceScope scope(index_);
    check(cudaMemsetAsync(to, 0, bytes, current_stream(index_)));
  }
  void synchronize() override {
    const DeviceScope scope(index_);
    check(cudaStreamSynchronize(current_stream(index_)));
    raise_faults(index_);
  }

  void record_use(const void* data, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    Block* block = cache_.around(static_cast<const std::byte*>(data));
    if (block && !block->free && block->stream != stream) block->users.insert(stream);
  }
  bool contains(const void* at) const {
    const std::lock_guard lock(mutex_);
    return cache_.around(static_cast<const std::byte*>(at)) != nullptr;
  }
  size_t reserved() const {
    const std::lock_guard lock(mutex_);
    return cache_.reserved();
  }
  void drop_cached() {
    const std::lock_guard lock(mutex_);
    drop_segments();
  }
  void forget(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    const bool has_pool = std::ranges::any_of(pools_, [&](const auto& entry) { return entry.first.second == stream; });
    if (!has_pool && !cache_.remembers(stream)) return;
    const cudaStream_t main = main_stream(index_);
    wait_for(index_, main, stream);
    for (auto it = pools_.begin(); it != pools_.end();) {
      const auto at = it++;
      if (at->first.second != stream) continue;
      auto pool = pools_.extract(at);
      pool.key().second = main;
      const auto [now, was_none, rest] = pools_.insert(std::move(pool));
      if (!was_none) cache_.hand_over(rest.mapped().get(), now->second.get());
    }
    cache_.forget(stream, main);
  }
  std::byte* workspace(cudaStream_t stream, size_t bytes) {
    if (bytes == 0) return nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = workspaces_.find({pool_here, stream});
      if (found != workspaces_.end() && found->second.back()->bytes() >= bytes)
        return static_cast<std::byte*>(found->second.back()->data());
    }
    const MemoryScope category(MemoryCategory::workspace);
    auto made = std::make_shared<Storage>(bytes, Device{DeviceKind::cuda, static_cast<int8_t>(index_)});
    const std::lock_guard lock(mutex_);
    return static_cast<std::byte*>(workspaces_[{pool_here, stream}].emplace_back(std::move(made))->data());
  }
  void hand_over(const void* pool) {
    std::vector<std::shared_ptr<Storage>> released;  // which goes back before the pool does, and takes the lock itself
    {
      const std::lock_guard lock(mutex_);
      for (auto it = workspaces_.begin(); it != workspaces_.end();) {
        const auto at = it++;
        if (at->first.first != pool) continue;
        std::ranges::move(at->second, std::back_inserter(released));
        workspaces_.erase(at);
      }
    }
    released.clear();
    const std::lock_guard lock(mutex_);
    for (const auto& [key, name] : pools_)
      if (key.first == pool) cache_.hand_over(name.get(), main_stream(index_));
    std::erase_if(pools_, [pool](const auto& entry) { return entry.first.first == pool; });
  }

 private:
  static cudaStream_t stream_of(const void* stream) { return static_cast<cudaStream_t>(const_cast<void*>(stream)); }

  Block* take(size_t size, cudaStream_t stream) {
    const void* pool = pool_here ? pool_of(stream) : stream;
    const void* from = nullptr;
    Block* block = cache_.take(size, pool, !pool_here && !apart_here, &from);
    if (!block) {
      const size_t segment = BlockCache::segment_size(size);
      if (std::byte* data = from_driver(segment)) cache_.add_segment(data, segment, pool);
      block = cache_.take(size, pool, !pool_here, &from);
    }
    if (!block) refuse(size);
    if (from) wait_for(index_, stream, stream_of(from));
    for (const auto& [user, fence] : block->fences)
      if (user != stream) check(cudaStreamWaitEvent(stream, static_cast<const Event*>(fence.event.get())->get()));
    block->fences.clear();
    return block;
  }

  // Behind what the other streams that touch the block have queued so far.
  Fences fences_of(const Block& block) {
    Fences fences;
    if (block.users.empty()) return fences;
    const DeviceScope scope(index_);
    for (const void* user : block.users) {
      auto event = std::make_shared<Event>();
      event->record(stream_of(user));
      fences[user] = {++fences_, std::move(event)};
    }
    return fences;
  }

  // What the present pool has for one stream: streams run at the same time.
  const void* pool_of(cudaStream_t stream) {
    std::unique_ptr<char>& name = pools_[{pool_here, stream}];
    if (!name) {
      name = std::make_unique<char>();
      cache_.reserve(name.get());
    }
    return name.get();
  }

  // Null if there is none left.
  std::byte* from_driver(size_t segment) {
    const OutsideOfCapture outside;
    void* data = nullptr;
    cudaError_t result = cudaMalloc(&data, segment);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      drop_segments();
      result = cudaMalloc(&data, segment);
    }
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(result);
    return static_cast<std::byte*>(data);
  }

  // The driver waits for the device before it takes memory back.
  void drop_segments() {
    const DeviceScope scope(index_);
    const OutsideOfCapture outside;
    for (std::byte* segment : cache_.drop_free_segments()) check(cudaFree(segment));
  }

  [[noreturn]] void refuse(size_t bytes) const {
    size_t free_bytes = 0, total = 0;
    check(cudaMemGetInfo(&free_bytes, &total));
    throw Error(
        fmt::format("cuda:{}: out of memory: {} bytes were asked for, {} of {} are free, {} are live here, the "
                    "peak was {}",
                    index_, bytes, free_bytes, total, counters_.live, counters_.peak),
        "use a smaller batch or fewer timesteps; `stepnet estimate --device cuda` says beforehand what is needed");
  }

  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) const {
    if (bytes == 0) return;
    const DeviceScope scope(index_);
    check(cudaMemcpyAsync(to, from, bytes, kind, current_stream(index_)));
  }

  const int index_;
  mutable std::mutex mutex_;
  MemoryCounters counters_;
  CategoryCounts categories_;
  BlockCache cache_;
  uint64_t fences_ = 0;
  std::map<std::pair<const void*, cudaStream_t>, std::unique_ptr<char>> pools_;
  std::map<std::pair<const void*, cudaStream_t>, std::vector<std::shared_ptr<Storage>>> workspaces_;
};

struct Allocators {
  std::mutex mutex;
  std::vector<std::unique_ptr<CudaAllocator>> all;  // by device
};
// Never destroyed: tensors in other static objects may be released after it would be.
Allocators& allocators() {
  static Allocators& made = *new Allocators;
  return made;
}

// Throws Error where the machine has no such device.
CudaAllocator& cuda_allocator(int index) {
  auto& [mutex, all] = allocators();
  const std::lock_guard lock(mutex);
  if (index >= 0 && index < static_cast<int>(all.size())) return *all[static_cast<size_t>(index)];
  const DeviceScope scope(index);
  while (static_cast<int>(all.size()) <= index)
    all.push_back(std::make_unique<CudaAllocator>(static_cast<int>(all.size())));
  return *all[static_cast<size_t>(index)];
}

// Whose allocator gave the byte; `otherwise` if none did, and where there is one device only.
int device_of_address(const void* at, int otherwise) {
  auto& [mutex, all] = allocators();
  const std::lock_guard lock(mutex);
  if (all.size() == 1 || all[static_cast<size_t>(otherwise)]->contains(at)) return otherwise;
  const auto owner = std::ranges::find_if(all, [at](const auto& each) { return each->contains(at); });
  return owner == all.end() ? otherwise : static_cast<int>(owner - all.begin());
}

Allocator& allocator_of(int index) { return cuda_allocator(index); }
void forget(int device, cudaStream_t stream) { cuda_allocator(device).forget(stream); }
REGISTER(cuda_memory) {
  return entry([] {
    add_allocators(DeviceKind::cuda, allocator_of);
    when_stream_ends(forget);
  });
}

}  // namespace

void record_use(int device, const void* data, cudaStream_t stream) { cuda_allocator(device).record_use(data, stream); }
size_t reserved_bytes(int device) { return cuda_allocator(device).reserved(); }
void drop_cached(int device) { cuda_allocator(device).drop_cached(); }

bool keep_apart(bool on) { return std::exchange(apart_here, on); }

PoolScope::PoolScope(const void* name) { pool_here = name; }
PoolScope::~PoolScope() { pool_here = nullptr; }
std::byte* pool_workspace(int device, cudaStream_t stream, size_t bytes) {
  return cuda_allocator(device).workspace(stream, bytes);
}
void release_pool(int device, const void* name) { cuda_allocator(device).hand_over(name); }

PinnedBytes::PinnedBytes(size_t bytes) : size_(bytes) {
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable));
  data_ = static_cast<std::byte*>(data);
}
PinnedBytes::~PinnedBytes() { cudaFreeHost(data_); }

}  // namespace stepnet::gpu
