#include "core/parallel.h"

#include <omp.h>

#include <algorithm>
#include <thread>

namespace stepnet {
namespace {

thread_local bool serial = false;
int thread_count = 0;

constexpr double kMinimumWork = 4000;  // nanoseconds per thread; a region costs about 400

}  // namespace

void set_threads(int count) {
  if (count <= 0) count = omp_get_num_procs();
  thread_count = count;
  omp_set_num_threads(count);
  omp_set_dynamic(0);
}

int threads() {
  if (thread_count == 0) set_threads(0);
  return thread_count;
}

SerialScope::SerialScope() : before_(serial) { serial = true; }
SerialScope::~SerialScope() { serial = before_; }
bool serial_here() { return serial || omp_in_parallel() != 0; }

void parallel_for(int64_t n, double cost_per_item, const std::function<void(int64_t, int64_t)>& fn) {
  if (n <= 0) return;
  const double work = static_cast<double>(n) * cost_per_item;
  const int64_t most = std::min<int64_t>({threads(), n, static_cast<int64_t>(work / kMinimumWork)});
  if (most <= 1 || serial_here()) {
    fn(0, n);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(most))
  {
    const int64_t count = omp_get_num_threads();
    const int64_t i = omp_get_thread_num();
    fn(n * i / count, n * (i + 1) / count);
  }
}

}  // namespace stepnet
