#include "core/tensor/dry_device.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "stepnet/error.h"

namespace stepnet {

namespace {

// No address of a process, so that reading there is a fault at once.
constexpr uintptr_t kFirstPlace = uintptr_t{1} << 56;

}  // namespace

struct DryMemory {
  MemoryCounters counters;
  int64_t events = 0, peak_event = 0;
  CategoryCounts categories;
  uintptr_t next = kFirstPlace;
  std::vector<DryBlock> blocks;
  std::unordered_map<const void*, size_t> latest;  // block at a place
  std::map<size_t, std::vector<std::byte*>> kept;  // places to use again, by size, as the CPU's allocator does
  std::mutex mutex;                                // the last holder of a storage may be on another thread

  std::byte* place_for(size_t size) {
    if (std::vector<std::byte*>& same = kept[size]; !same.empty()) {
      std::byte* place = same.back();
      same.pop_back();
      return place;
    }
    if (next > UINTPTR_MAX / 2) next = kFirstPlace;
    return reinterpret_cast<std::byte*>(std::exchange(next, next + size));
  }
};

namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kMostBytes = int64_t{1} << 60;

int64_t counted(size_t bytes, DeviceKind device) {
  require(bytes <= static_cast<size_t>(kMostBytes), "{} bytes are more than can be counted", bytes);
  return static_cast<int64_t>(block_bytes(device, bytes));
}

// Zeros; of many bytes the system makes those that are touched.
class KnownBytes {
 public:
  explicit KnownBytes(size_t bytes) : all_(std::calloc(bytes + kAlignment, 1)) {
    if (!all_) throw std::bad_alloc();
  }
  ~KnownBytes() { std::free(all_); }
  KnownBytes(const KnownBytes&) = delete;
  KnownBytes& operator=(const KnownBytes&) = delete;
  std::byte* first() const {
    const auto address = reinterpret_cast<uintptr_t>(all_);
    return static_cast<std::byte*>(all_) + (kAlignment - address % kAlignment) % kAlignment;
  }

 private:
  void* all_;
};

// Tells the memory when the last holder lets go.
struct Held {
  std::shared_ptr<DryMemory> memory;
  size_t block, size;
  std::byte* place = nullptr;
  std::unique_ptr<KnownBytes> known;
  Held(std::shared_ptr<DryMemory> m, size_t b, size_t s) : memory(std::move(m)), block(b), size(s) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    const std::lock_guard lock(memory->mutex);
    DryBlock& gone = memory->blocks[block];
    gone.gone = memory->events++;
    memory->counters.live -= gone.bytes;
    memory->categories.add(gone.category, -gone.bytes);
    if (!known) memory->kept[size].push_back(place);
  }
};

}  // namespace

DryScope::DryScope(DeviceKind claims) : claims_(claims), before_(innermost), memory_(std::make_shared<DryMemory>()) {
  innermost = this;
}

DryScope::~DryScope() { innermost = before_; }

MemoryCounters DryScope::counters() const { return memory_->counters; }

void DryScope::reset_peak() {
  memory_->counters.peak = memory_->counters.live;
  memory_->peak_event = memory_->events;
  memory_->categories.reset_peaks();
}

int64_t DryScope::peak_event() const { return memory_->peak_event; }
MemoryByCategory DryScope::categories() const { return memory_->categories.bytes(); }
int64_t DryScope::workspace() const { return categories()[static_cast<size_t>(MemoryCategory::workspace)].live; }
int64_t DryScope::events() const { return memory_->events; }
int64_t DryScope::block_at(const void* place) const {
  const auto found = memory_->latest.find(place);
  return found == memory_->latest.end() ? -1 : static_cast<int64_t>(found->second);
}

const std::vector<DryBlock>& DryScope::blocks() const { return memory_->blocks; }

bool DryScope::has_bytes(const void* place) { return reinterpret_cast<uintptr_t>(place) < kFirstPlace; }

std::shared_ptr<void> DryScope::take(size_t bytes, std::byte** place) {
  *place = nullptr;
  if (bytes == 0) return nullptr;
  const int64_t size = counted(bytes, claims_);
  DryMemory& m = *memory_;
  require(size <= kMostBytes - m.counters.live, "{} bytes are more than can be counted beside the {} that are live",
          bytes, m.counters.live);
  auto held = std::make_shared<Held>(memory_, m.blocks.size(), block_bytes(DeviceKind::cpu, bytes));
  if (bytes <= most_known_) {
    held->known = std::make_unique<KnownBytes>(bytes);
    held->place = held->known->first();
  } else {
    held->place = m.place_for(held->size);
  }
  *place = held->place;
  m.latest[*place] = m.blocks.size();
  const MemoryCategory category = in_workspace_ ? MemoryCategory::workspace : MemoryScope::now();
  m.blocks.push_back({*place, size, m.events++, -1, category});
  ++m.counters.allocations;
  m.counters.live += size;
  m.categories.add(category, size);
  if (m.counters.live > m.counters.peak) {
    m.counters.peak = m.counters.live;
    m.peak_event = m.events;
  }
  return held;
}

DryAtOnce::DryAtOnce() {
  const DryScope* dry = DryScope::now();
  if (!dry) return;
  memory_ = dry->memory_;
  live_ = part_live_ = memory_->counters.live;
  peak_ = std::exchange(memory_->counters.peak, live_);
  peak_event_ = memory_->peak_event;
}

void DryAtOnce::end_part() {
  together_ += memory_->counters.peak - part_live_;
  if (memory_->counters.peak > highest_) {
    highest_ = memory_->counters.peak;
    highest_event_ = memory_->peak_event;
  }
  part_live_ = memory_->counters.peak = memory_->counters.live;
}

void DryAtOnce::next() {
  if (memory_) end_part();
}

DryAtOnce::~DryAtOnce() {
  if (!memory_) return;
  end_part();
  memory_->counters.peak = std::max(peak_, live_ + together_);
  memory_->peak_event = live_ + together_ > peak_ ? highest_event_ : peak_event_;
}

MemoryCounters memory_counters() {
  const DryScope* dry = DryScope::now();
  return dry ? dry->counters() : allocator(Device{}).counters();
}

}  // namespace stepnet
