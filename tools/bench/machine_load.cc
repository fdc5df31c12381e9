// Reads Linux's /proc/stat.
#include "tools/bench/machine_load.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

namespace stepnet::bench {
namespace {

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The first line's numbers are user, nice, system, idle, iowait, irq, softirq, steal, ... in ticks.
double busy_seconds() {
  constexpr int kIdle = 3, kWait = 4, kSteal = 7;
  std::ifstream in("/proc/stat");
  std::string word;
  in >> word;
  double ticks = 0, value = 0;
  for (int i = 0; i <= kSteal && in >> value; ++i)
    if (i != kIdle && i != kWait) ticks += value;
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

MachineLoad::MachineLoad() : start_(clock_seconds()), all_(busy_seconds()), own_(own_seconds()) {}

double MachineLoad::others() const {
  constexpr double kGrain = 0.04;  // all cores' work is counted in ticks
  const double others = (busy_seconds() - all_) - (own_seconds() - own_) - kGrain;
  return std::max(0.0, others / std::max(clock_seconds() - start_, 1e-9));
}

void MachineLoad::warn(const std::string& what) const {
  constexpr double kBusy = 0.1;  // cores
  if (const double busy = others(); busy > kBusy)
    fmt::print(stderr, "warning: other programs kept {:.2f} cores busy: do not trust {}\n", busy, what);
}

}  // namespace stepnet::bench
