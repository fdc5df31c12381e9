// Profiler: time, calls and bytes per operator type, for `--profile`.
//
// Threads: record() may be called from several threads.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace stepnet {

class Profiler {
 public:
  struct Row {
    std::string type;
    int64_t calls = 0;
    double seconds = 0;  // inside the operator, its own nested operators included
    double bytes = 0;    // of the inputs read and outputs written
    double flops = 0;
  };
  void record(const std::string& type, double seconds, double bytes, double flops);
  std::vector<Row> rows() const;  // by seconds, largest first

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Row> rows_;
};

// Seconds on a steady clock, for differences.
double now_seconds();

}  // namespace stepnet
