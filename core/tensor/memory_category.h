// What a block of a device's memory is for, beside its size: allocators count each category by itself.
//
// Values are the default. What a kernel works on and forgets, and what a library keeps for that purpose between its
// runs, is workspace; what a library's forward run leaves for its backward run is a reserve.
// Threads: the category in force is per thread; counts may be used from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "core/tensor/device.h"

namespace stepnet {

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

// Of a device's allocator; throws Error if there is no such device. On the CPU, where kernels work in memory of their
// own libraries, all that the allocator hands out counts as values.
MemoryByCategory memory_by_category(Device device);

// An allocator that knows categories is one of these, too.
class CountsCategories {
 public:
  virtual ~CountsCategories() = default;
  virtual MemoryByCategory categories() const = 0;
};

}  // namespace stepnet
