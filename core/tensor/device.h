// Device and Allocator: where bytes live, and the only place that hands them out.
//
// One allocator per device, with exact counters: tests and `--profile` read them. Sizes are rounded up to a multiple of
// 64 bytes on the CPU, of 512 on a GPU, and blocks are aligned to as much. Freed blocks are kept for reuse, on the CPU
// up to a bound, and are not counted as live.
// What is queued on a GPU (kernels, copies within the device, fills) runs in order on the calling thread's current
// stream; what touches host memory is done when the call returns.
// Threads: allocators and their counters may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
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
// A device module (gpu/) offers its allocators; the factory throws Error where the machine has no device.
void offer_allocators(DeviceKind kind, Allocator& (*factory)(int index));
// This build and this machine have at least one such device.
bool device_offered(DeviceKind kind);

}  // namespace stepnet
