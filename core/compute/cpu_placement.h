// Where threads run.
#pragma once

#include <vector>

namespace stepnet {

// The CPU that the calling thread runs on, or -1 where the system does not say.
int this_cpu();

// The calling thread, as KeptOffCpu knows it, and its process.
int this_thread();
int this_process();

// While it lives, `threads` of this process run on other CPUs than `cpu`, and those that waited for it have been moved.
// Nothing happens where the system does not allow it, or where a thread may use fewer than `needed` CPUs. Allocates
// nothing: what it leaves in `threads` are those that lost the CPU and get it back.
class KeptOffCpu {
 public:
  KeptOffCpu(int cpu, std::vector<int>& threads, int needed);
  ~KeptOffCpu();
  KeptOffCpu(const KeptOffCpu&) = delete;
  KeptOffCpu& operator=(const KeptOffCpu&) = delete;

 private:
  int cpu_;
  std::vector<int>& threads_;
};

}  // namespace stepnet
