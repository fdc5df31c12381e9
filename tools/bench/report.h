// Rows of figures: a table on standard output, and JSON lines in a file if one is named.
//
// Threads: for the main thread.
#pragma once

#include <fstream>
#include <string>

#include "tools/bench/timing.h"

namespace stepnet::bench {

struct Row {
  std::string net;
  Size size;
  int threads;
  Mode mode;
  Times times;
  std::string peer;
  Times peer_times;
  double bound_ms;
  double ratio() const { return times.minimum / peer_times.minimum; }
};

class Report {
 public:
  explicit Report(const std::string& json_path);  // "": no file; throws Error if it cannot be written
  void add(const Row& row);
  void close();  // throws Error if the file could not be written in full

 private:
  std::string path_;
  std::ofstream json_;
  bool begun_ = false;
};

}  // namespace stepnet::bench
