// Times of peers that ran in processes of their own (tools/bench/peers): read from a file, and the best of each peer's
// settings.
//
// A line has seven fields between tabs: peer, cell, "T,B,I,H,layers", mode, threads, how threads wait, milliseconds.
// Threads: immutable once read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/cell_case.h"

namespace stepnet::bench {

struct PeerTime {
  std::string peer, cell, size, mode, threads, waiting;
  double ms = 0;
  std::string setting() const;
};

class PeerTimes {
 public:
  explicit PeerTimes(const std::string& path);  // "": none; throws Error
  // Of each peer the fastest with at most so many threads.
  std::vector<PeerTime> best(std::string_view cell, const Size& size, std::string_view mode, int threads) const;

 private:
  std::vector<PeerTime> all_;
};

}  // namespace stepnet::bench
