// Threads inside one operator.
//
// Only the thread that runs the net opens parallel regions; kernels called from any other thread (prefetch, concurrent
// substeps) run single-threaded. Work is split into fixed, equal, contiguous ranges, so results depend only on the
// thread count.
// Threads: set_threads is called at start; parallel_for may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>

namespace stepnet {

void set_threads(int threads);  // 0: one per core that this process may use
int threads();

// Makes parallel_for in this thread run serially while alive.
class SerialScope {
 public:
  SerialScope();
  ~SerialScope();
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;

 private:
  bool before_;
};
bool serial_here();

// Calls fn(begin, end) over a partition of [0, n). One call if n * cost_per_item (about nanoseconds) is too little work
// to be worth a region. fn must not throw.
void parallel_for(int64_t n, double cost_per_item, const std::function<void(int64_t, int64_t)>& fn);

}  // namespace stepnet
