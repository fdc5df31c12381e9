// What the device reaches at best, measured in the same run as what is compared with it: the clocks that a device runs
// at under load are not those of its data sheet. Threads: for the main thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/bench/stepnet_net.h"

namespace stepnet::bench {

struct DeviceLimits {
  double bytes_per_second = 0;                     // of a copy, which reads them and writes them
  std::map<std::string, double> flops_per_second;  // of a large product, by its type
  // By which of them work takes longest, and how long at least, in milliseconds.
  struct Bound {
    double ms = 0;
    const char* by = "";
  };
  Bound bound(const NetWork& work, const std::string& type) const;
};

// On device 0. `small`: sizes that say nothing, but take no time on an imitated device.
DeviceLimits measure_limits(const std::vector<std::string>& types, bool small);

}  // namespace stepnet::bench
