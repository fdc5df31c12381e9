// Device and Allocator: where bytes live, and the only place that hands them out.
//
// One allocator per device, with exact counters: tests and `--profile` read them. Sizes are rounded up to a multiple of
// 64 bytes on the CPU, of 512 on a GPU, and blocks are aligned to as much. Freed blocks are kept for reuse, on the CPU
// up to a bound, and are not counted as live.
// What is queued on a GPU (kernels, copies within the device, fills) runs in order on the calling thread's current
// stream; what touches host memory is done when the call returns.
// Threads: allocators and their counters may be used from any thread; the category of memory in force is per thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace stepnet {

enum class DeviceKind : int8_t { cpu = 0, cuda = 1 };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
  std::string str() const;  // "cpu", "cuda:0"
};

struct MemoryCounters {
  int64_t live = 0;         // bytes handed out and not returned
  int64_t peak = 0;         // largest `live` since the last reset_peak
  int64_t allocations = 0;  // number of blocks ever handed out
};

// What an allocator of this kind hands out for so many bytes.
constexpr size_t block_bytes(DeviceKind kind, size_t bytes) {
  const size_t unit = kind == DeviceKind::cpu ? 64 : 512;
  return (bytes + unit - 1) / unit * unit;
}

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(size_t bytes) = 0;  // throws Error when memory is out; never null for bytes > 0
  virtual void release(void* data, size_t bytes) noexcept = 0;
  virtual MemoryCounters counters() const = 0;
  virtual void reset_peak() = 0;
  // Copies between this device and the host; the host memory may be reused when they return.
  virtual void copy_from_host(void* to, const void* from, size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;
  // Queued behind the work so far, as seen by the calling thread.
  virtual void copy_within(void* to, const void* from, size_t bytes) = 0;
  virtual void fill_zero(void* to, size_t bytes) = 0;
  // Blocks until the calling thread's work so far is done; throws Error if some of it failed.
  virtual void synchronize() {}
};

// The device's allocator; throws Error if this build or this machine has no such device.
Allocator& allocator(Device device);
// Requests of CPU memory that would make more than this live are Errors. At first it is what the machine has, since the
// system grants more than that and ends the process when it is written.
void limit_cpu_memory(int64_t bytes);
int64_t cpu_memory_limit();
// What a device's module (gpu/) registers; the factory throws Error where the machine has no device.
void add_allocators(DeviceKind kind, Allocator& (*factory)(int index));
// This build and this machine have at least one such device.
bool device_offered(DeviceKind kind);

// What a block of a device's memory is for, beside its size: allocators count each category by itself. Values are the
// default. What a kernel works on and forgets, and what a library keeps for that purpose between its runs, is
// workspace; what a library's forward run leaves for its backward run is a reserve.
enum class MemoryCategory : int8_t { value = 0, reserve = 1, workspace = 2 };
inline constexpr int kMemoryCategories = 3;
const char* memory_category_name(MemoryCategory category);  // "values", "reserves", "workspaces"

// While one is alive, what the calling thread allocates is of this category. A block keeps the one it was made with.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category) : before_(current) { current = category; }
  ~MemoryScope() { current = before_; }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  static MemoryCategory now() { return current; }

 private:
  inline static constinit thread_local MemoryCategory current = MemoryCategory::value;
  MemoryCategory before_;
};

struct CategoryBytes {
  int64_t live = 0, peak = 0;  // the peak is each category's own, since the last reset
  bool operator==(const CategoryBytes&) const = default;
};
using MemoryByCategory = std::array<CategoryBytes, kMemoryCategories>;

class CategoryCounts {
 public:
  void add(MemoryCategory category, int64_t bytes);  // less than 0: released
  void reset_peaks();
  MemoryByCategory bytes() const;

 private:
  mutable std::mutex mutex_;
  MemoryByCategory bytes_ = {};
};

// Returns the counts of a device's allocator; throws Error if there is no such device. On the CPU, where kernels work
// in memory of their own libraries, all that the allocator hands out counts as values.
MemoryByCategory memory_by_category(Device device);

// An allocator that knows categories is one of these, too.
class CountsCategories {
 public:
  virtual ~CountsCategories() = default;
  virtual MemoryByCategory categories() const = 0;
};

// The most bytes of the CPU's allocator that are live while one of these is there, or since restart(), whatever thread
// takes them. It leaves the allocator's own peak alone, and there may be several at a time; restart() and peak() are
// for the thread that made it.
class LivePeak {
 public:
  LivePeak();
  ~LivePeak();
  LivePeak(const LivePeak&) = delete;
  LivePeak& operator=(const LivePeak&) = delete;

  void restart();
  int64_t peak() const;

 private:
  friend class CpuAllocator;
  int64_t bytes_ = 0;  // the allocator's mutex guards it
};

// Returns CPU memory that no tensor has to the system: blocks that are kept for later requests, and pages that the C
// library holds free. After it each new block costs page faults, so it is for where what is asked for from then on has
// other sizes.
void give_back_free_memory();

}  // namespace stepnet
