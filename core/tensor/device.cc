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

// A sanitizer finds uses after free only if freed blocks really go back, and uses out of bounds if it made them.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMaxKept = 0, kMapped = SIZE_MAX;
#else
constexpr size_t kMaxKept = size_t{256} << 20;
// From so many bytes on a block has pages of its own, which go back to the system when it does. The heap of malloc
// would be left with holes where segments of all sizes come and go.
constexpr size_t kMapped = size_t{128} << 10;
#endif
constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// A large block is made of huge pages where the system has them on offer: matrix products on it run some percent
// faster.
void* map_pages(size_t size) {
  const bool huge = size >= 2 * kHugePage;
  const size_t whole = round_up(size, kPage), more = huge ? kHugePage : 0;
  void* const mapped = mmap(nullptr, whole + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (!huge) return mapped;
  auto* const first = static_cast<std::byte*>(mapped);
  const size_t skipped = (kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage) % kHugePage;
  if (skipped > 0) munmap(first, skipped);
  if (skipped < more) munmap(first + skipped + whole, more - skipped);
#if defined(MADV_HUGEPAGE)
  madvise(first + skipped, size / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return first + skipped;
}

void* from_system(size_t size) {
  if (size >= kMapped) return map_pages(size);
  void* data = nullptr;
  return posix_memalign(&data, kAlignment, size) == 0 ? data : nullptr;
}

void to_system(void* data, size_t size) {
  if (size >= kMapped)
    munmap(data, round_up(size, kPage));
  else
    std::free(data);
}

// What is behind the first bytes goes back.
void shorten(void* data, size_t size, size_t to) {
  const size_t end = round_up(size, kPage), left = round_up(to, kPage);
  if (left < end) munmap(static_cast<std::byte*>(data) + left, end - left);
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
// system costs page faults each time. Together with those that are live they are never more than the most that was live
// at a time, since blocks were given back last.
class CpuAllocator : public Allocator {
 public:
  ~CpuAllocator() override { drop_kept(); }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    require(bytes <= SIZE_MAX - kAlignment, "{} bytes of memory were asked for", bytes);
    const size_t size = rounded(bytes);
    const bool fits = size <= static_cast<size_t>(std::max<int64_t>(0, standing_limit() - counters().live));
    void* data = fits ? take_kept(size) : nullptr;
    if (fits && !data) data = make_room(size);
    if (fits && !data && is_left(size)) data = from_system(size);
    if (fits && !data) {
      drop_kept();
      if (is_left(size)) data = from_system(size);
    }
    if (!data) refuse(size);
    const std::lock_guard lock(mutex_);
    counters_.live += static_cast<int64_t>(size);
    counters_.peak = std::max(counters_.peak, counters_.live);
    most_live_ = std::max(most_live_, counters_.live);
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
      to_system(data, size);
    }
  }

  void drop_kept() {
    const std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : kept_)
      for (void* block : blocks) to_system(block, size);
    kept_.clear();
    kept_bytes_ = 0;
    most_live_ = counters_.live;
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
    return it == kept_.end() ? nullptr : take(it);
  }

  using Kept = std::map<size_t, std::vector<void*>>;
  void* take(Kept::iterator it) {
    void* const data = it->second.back();
    it->second.pop_back();
    kept_bytes_ -= it->first;
    if (it->second.empty()) kept_.erase(it);
    return data;
  }

  // Lets go of kept blocks where a new one would make all of them more than was ever live. Returns the new one if it
  // could be made of one of them.
  void* make_room(size_t size) {
    const std::lock_guard lock(mutex_);
    const auto live = static_cast<size_t>(counters_.live) + size;
    const size_t most = std::max(live, static_cast<size_t>(most_live_));
    while (live + kept_bytes_ > most) {
      const size_t excess = live + kept_bytes_ - most;
      auto it = kept_.lower_bound(std::max(excess, size));
      if (it == kept_.end()) it = std::prev(kept_.end());
      const size_t kept = it->first;
      void* const data = take(it);
      if (size >= kMapped && kept >= size) {
        shorten(data, kept, size);
        return data;
      }
      to_system(data, kept);
    }
    return nullptr;
  }

  mutable std::mutex mutex_;
  MemoryCounters counters_;
  Kept kept_;  // by size, none of them empty
  size_t kept_bytes_ = 0;
  int64_t most_live_ = 0;
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
