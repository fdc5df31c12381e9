#include "stepnet/device.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/tensor/machine_memory.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr size_t kAlignment = 64;

// A sanitizer finds uses after free only if freed blocks really go back.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMaxKept = 0;
#else
constexpr size_t kMaxKept = size_t{256} << 20;
#endif

// A large block is made of huge pages where the system has them on offer: matrix products on it run some percent
// faster.
void* from_system(size_t size) {
  constexpr size_t kHugePage = size_t{2} << 20;
  void* data = nullptr;
  if (posix_memalign(&data, size >= 2 * kHugePage ? kHugePage : kAlignment, size) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (size >= 2 * kHugePage) madvise(data, size / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return data;
}

// As it was set; less than 0: what the machine has.
std::atomic<int64_t>& given_limit() {
  static std::atomic<int64_t> bytes{-1};
  return bytes;
}

int64_t standing_limit() {
  static const int64_t machine = most_memory();
  const int64_t given = given_limit();
  return given >= 0 ? given : machine;
}

size_t rounded(size_t bytes) { return block_bytes(DeviceKind::cpu, bytes); }

}  // namespace

// Blocks are kept by exact size: a training run asks for the same sizes every iteration, and a fresh block from the
// system costs page faults each time.
class CpuAllocator : public Allocator {
 public:
  ~CpuAllocator() override {
    for (auto& [size, blocks] : kept_)
      for (void* block : blocks) std::free(block);
  }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    require(bytes <= SIZE_MAX - kAlignment, "{} bytes of memory were asked for", bytes);
    const size_t size = rounded(bytes);
    const bool fits = size <= static_cast<size_t>(std::max<int64_t>(0, standing_limit() - counters().live));
    void* data = fits ? take_kept(size) : nullptr;
    if (fits && !data && is_left(size)) data = from_system(size);
    if (fits && !data) {
      drop_kept();
      if (is_left(size)) data = from_system(size);
    }
    if (!data) refuse(size);
    const std::lock_guard lock(mutex_);
    counters_.live += static_cast<int64_t>(size);
    counters_.peak = std::max(counters_.peak, counters_.live);
    for (LivePeak* watch : watches_) watch->bytes_ = std::max(watch->bytes_, counters_.live);
    ++counters_.allocations;
    return data;
  }

  void release(void* data, size_t bytes) noexcept override {
    if (!data) return;
    const size_t size = rounded(bytes);
    const std::lock_guard lock(mutex_);
    counters_.live -= static_cast<int64_t>(size);
    if (kept_bytes_ + size <= kMaxKept) {
      kept_[size].push_back(data);
      kept_bytes_ += size;
    } else {
      std::free(data);
    }
  }

  void drop_kept() {
    const std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : kept_)
      for (void* block : blocks) std::free(block);
    kept_.clear();
    kept_bytes_ = 0;
  }

  void watch(LivePeak& watch) {
    const std::lock_guard lock(mutex_);
    watch.bytes_ = counters_.live;
    if (std::ranges::find(watches_, &watch) == watches_.end()) watches_.push_back(&watch);
  }
  void forget(LivePeak& watch) {
    const std::lock_guard lock(mutex_);
    std::erase(watches_, &watch);
  }
  int64_t peak_of(const LivePeak& watch) const {
    const std::lock_guard lock(mutex_);
    return watch.bytes_;
  }

  int64_t kept_bytes() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(kept_bytes_);
  }

  MemoryCounters counters() const override {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    counters_.peak = counters_.live;
  }
  void copy_from_host(void* to, const void* from, size_t bytes) override { copy_within(to, from, bytes); }
  void copy_to_host(void* to, const void* from, size_t bytes) override { copy_within(to, from, bytes); }
  void copy_within(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void fill_zero(void* to, size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }

 private:
  // Asking the system takes some microseconds, so small requests do without.
  static bool is_left(size_t size) {
    constexpr size_t kLarge = size_t{32} << 20;
    return size < kLarge || given_limit() >= 0 || static_cast<int64_t>(size) <= memory_left().least();
  }
  [[noreturn]] void refuse(size_t size) const {
    const MemoryCounters now = counters();
    fail("out of memory: {} bytes were asked for, {} are live of at most {}, the peak was {}", size, now.live,
         cpu_memory_limit(), now.peak);
  }
  void* take_kept(size_t size) {
    const std::lock_guard lock(mutex_);
    const auto it = kept_.find(size);
    if (it == kept_.end() || it->second.empty()) return nullptr;
    void* data = it->second.back();
    it->second.pop_back();
    kept_bytes_ -= size;
    return data;
  }

  mutable std::mutex mutex_;
  MemoryCounters counters_;
  std::map<size_t, std::vector<void*>> kept_;
  size_t kept_bytes_ = 0;
  std::vector<LivePeak*> watches_;
};

namespace {

using Factory = Allocator& (*)(int);
std::array<std::atomic<Factory>, 2>& factories() {
  static std::array<std::atomic<Factory>, 2> all{};
  return all;
}

CpuAllocator& cpu_allocator() {
  // Never destroyed: tensors in other static objects may be released after it would be.
  static CpuAllocator& cpu = *new CpuAllocator;
  return cpu;
}

}  // namespace

std::string Device::str() const { return kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", index); }

Allocator& allocator(Device device) {
  if (device.kind == DeviceKind::cpu) return cpu_allocator();
  const Factory factory = factories()[static_cast<size_t>(device.kind)].load();
  if (!factory)
    throw Error(
        fmt::format("this build has no device {}", device.str()),
        "run on the CPU with --device cpu, or build with -DSTEPNET_CUDA=ON where the CUDA toolkit is installed");
  return factory(device.index);
}

void give_back_free_memory() {
  cpu_allocator().drop_kept();
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

LivePeak::LivePeak() { cpu_allocator().watch(*this); }
LivePeak::~LivePeak() { cpu_allocator().forget(*this); }
void LivePeak::restart() { cpu_allocator().watch(*this); }
int64_t LivePeak::peak() const { return cpu_allocator().peak_of(*this); }

void limit_cpu_memory(int64_t bytes) { given_limit() = bytes; }

int64_t cpu_memory_limit() {
  if (const int64_t given = given_limit(); given >= 0) return given;
  const int64_t mine = cpu_allocator().counters().live + cpu_allocator().kept_bytes();
  const int64_t left = memory_left().least();
  return left > INT64_MAX - mine ? standing_limit() : std::min(standing_limit(), mine + left);
}

void add_allocators(DeviceKind kind, Allocator& (*factory)(int index)) {
  factories()[static_cast<size_t>(kind)].store(factory);
}

bool device_offered(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return true;
  const Factory factory = factories()[static_cast<size_t>(kind)].load();
  if (!factory) return false;
  try {
    factory(0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

const char* memory_category_name(MemoryCategory category) {
  static constexpr std::array<const char*, kMemoryCategories> names = {"values", "reserves", "workspaces"};
  return names[static_cast<size_t>(category)];
}

void CategoryCounts::add(MemoryCategory category, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  CategoryBytes& counted = bytes_[static_cast<size_t>(category)];
  counted.live += bytes;
  counted.peak = std::max(counted.peak, counted.live);
}

void CategoryCounts::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (CategoryBytes& counted : bytes_) counted.peak = counted.live;
}

MemoryByCategory CategoryCounts::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

MemoryByCategory memory_by_category(Device device) {
  const Allocator& memory = allocator(device);
  if (const auto* counting = dynamic_cast<const CountsCategories*>(&memory)) return counting->categories();
  const MemoryCounters all = memory.counters();
  MemoryByCategory result = {};
  result[0] = {all.live, all.peak};
  return result;
}

}  // namespace stepnet
