// Stepnet's times and those of peers in processes of their own, as one table in Markdown.
//
// Peers' times are lines of six fields between tabs: peer, cell, "T,B,I,H,layers", mode, type, milliseconds; a line
// that begins with "#" is a note, which is printed below the table. Some peers' times are published ones, on another
// machine, and are called so. Threads: for the main thread.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/gpu/gpu_times.h"
#include "tools/bench/gpu/limits.h"

namespace stepnet::bench {

struct GpuRow {
  std::string cell, net;
  Size size;
  Mode mode;
  std::string type;  // "float32", "bfloat16" or "float16"
  GpuTimes times;
  NetWork work;
};

class GpuTable {
 public:
  GpuTable(const std::string& peer_times_path, DeviceLimits limits);  // "": no peers; throws Error
  void print_limits() const;
  void add(const GpuRow& row) const;  // prints it; the first with the table's head
  void print_notes() const;

 private:
  struct PeerTime {
    std::string peer, cell, size, mode, type;
    double ms = 0;
  };
  std::string peers_of(const GpuRow& row) const;

  DeviceLimits limits_;
  std::vector<PeerTime> peers_;
  std::vector<std::string> notes_;
  mutable bool has_head_ = false;
};

}  // namespace stepnet::bench
