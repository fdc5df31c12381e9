// The time that this process has had of its cores: with one thread, what a run takes whatever else the machine does.
#pragma once

#include <ctime>

namespace stepnet::bench {

inline double cpu_nanoseconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
}

}  // namespace stepnet::bench
