// The allocators of CUDA memory, offered to core/device.h when the library is loaded.
//
// Counted bytes are the bytes asked for; what the driver adds for its own granularity is not counted.
#include <mutex>
#include <vector>

#include "core/error.h"
#include "gpu/device.h"

namespace stepnet::gpu {
namespace {

class CudaAllocator : public Allocator {
 public:
  explicit CudaAllocator(int index) : index_(index) {}

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const DeviceScope scope(index_);
    void* data = nullptr;
    const cudaError_t result = cudaMalloc(&data, bytes);
    if (result == cudaErrorMemoryAllocation) fail_out_of_memory(bytes);
    check(result);
    const std::lock_guard lock(mutex_);
    counters_.live += static_cast<int64_t>(bytes);
    counters_.peak = std::max(counters_.peak, counters_.live);
    ++counters_.allocations;
    return data;
  }

  void release(void* data, size_t bytes) noexcept override {
    if (!data) return;
    cudaFree(data);  // finds the device by the address; a failure at the end of the process is of no use to anyone
    const std::lock_guard lock(mutex_);
    counters_.live -= static_cast<int64_t>(bytes);
  }

  MemoryCounters counters() const override {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    counters_.peak = counters_.live;
  }

  void copy_from_host(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void copy_within(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }

 private:
  [[noreturn]] void fail_out_of_memory(size_t bytes) const {
    cudaGetLastError();
    size_t free_bytes = 0, total = 0;
    check(cudaMemGetInfo(&free_bytes, &total));
    const MemoryCounters now = counters();
    throw Error(fmt::format("cuda:{}: out of memory: {} bytes were asked for, {} of {} are free, {} are live here",
                            index_, bytes, free_bytes, total, now.live),
                "use a smaller batch or fewer timesteps");
  }

  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) const {
    if (bytes == 0) return;
    const DeviceScope scope(index_);
    check(cudaMemcpy(to, from, bytes, kind));
    // A copy within the device returns before it is done, and callers were promised that it is.
    if (kind == cudaMemcpyDeviceToDevice) check(cudaStreamSynchronize(nullptr));
  }

  const int index_;
  mutable std::mutex mutex_;
  MemoryCounters counters_;
};

// Throws Error where the machine has no such device.
Allocator& allocator_of(int index) {
  // Never destroyed: tensors in other static objects may be released after it would be.
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::vector<std::unique_ptr<CudaAllocator>>;
  const DeviceScope scope(index);
  const std::lock_guard lock(mutex);
  while (static_cast<int>(all.size()) <= index)
    all.push_back(std::make_unique<CudaAllocator>(static_cast<int>(all.size())));
  return *all[index];
}

const bool offered = (offer_allocators(DeviceKind::cuda, allocator_of), true);

}  // namespace
}  // namespace stepnet::gpu
