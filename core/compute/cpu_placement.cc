#include "core/compute/cpu_placement.h"

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace stepnet {

#if defined(__linux__)

namespace {

// Whether the thread had the CPU, or had it not, before.
bool let_use(int thread, int cpu, bool allow, int needed) {
  if (thread <= 0) return false;  // 0 would be the calling one
  cpu_set_t cpus;
  if (sched_getaffinity(thread, sizeof(cpus), &cpus) != 0) return false;
  if (CPU_COUNT(&cpus) < needed || (CPU_ISSET(cpu, &cpus) != 0) == allow) return false;
  allow ? CPU_SET(cpu, &cpus) : CPU_CLR(cpu, &cpus);
  return CPU_COUNT(&cpus) > 0 && sched_setaffinity(thread, sizeof(cpus), &cpus) == 0;
}

}  // namespace

int this_cpu() { return sched_getcpu(); }
int this_thread() { return gettid(); }
int this_process() { return getpid(); }

KeptOffCpu::KeptOffCpu(int cpu, std::vector<int>& threads, int needed) : cpu_(cpu), threads_(threads) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) threads_.clear();
  std::erase_if(threads_, [&](int thread) { return !let_use(thread, cpu, false, needed); });
}

KeptOffCpu::~KeptOffCpu() {
  for (const int thread : threads_) let_use(thread, cpu_, true, 0);
}

#else

int this_cpu() { return -1; }
int this_thread() { return 0; }
int this_process() { return 0; }
KeptOffCpu::KeptOffCpu(int cpu, std::vector<int>& threads, int /*needed*/) : cpu_(cpu), threads_(threads) {
  threads_.clear();
}
KeptOffCpu::~KeptOffCpu() = default;

#endif

}  // namespace stepnet
