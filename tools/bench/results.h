// Rows of figures: a table on standard output, a summary of it, and JSON lines in a file if one is named.
//
// Threads: for the main thread.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "tools/bench/timing.h"

namespace stepnet::bench {

struct Row {
  std::string net;
  Size size;
  int threads;
  std::string mode;
  Times times;
  std::string peer;
  Times peer_times;
  double bound_ms = 0, products_ms = 0;  // 0: not known
  std::string peer_setting = {};         // threads and waiting of a peer that ran in a process of its own
  double overhead_ns = 0;                // per operator and timestep
  double ratio() const { return times.minimum / peer_times.minimum; }
};

class Report {
 public:
  explicit Report(const std::string& json_path);  // "": no file; throws Error if it cannot be written
  void add(const Row& row);
  // The median and the worst of the ratios for each net, peer, mode and number of threads.
  void print_summary() const;
  bool empty() const { return rows_.empty(); }
  void close();  // throws Error if the file could not be written in full

 private:
  std::string path_;
  std::ofstream json_;
  std::vector<Row> rows_;
};

}  // namespace stepnet::bench
