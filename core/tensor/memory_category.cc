#include "core/tensor/memory_category.h"

#include <algorithm>

namespace stepnet {

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
