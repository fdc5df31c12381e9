// The measurements, and what the command line asks of them. Each throws Error if a contender's results are wrong, and
// prints a warning if other programs kept the machine busy.
//
// Threads: for the main thread.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tools/bench/cell_case.h"
#include "tools/bench/results.h"

namespace stepnet::bench {

struct Options {
  std::string filter, json, peer_times, mode = "all";
  std::vector<int> threads = {1, 2};
  int rounds = 20;
  bool quick = false;

  bool wants(std::string_view what) const { return mode == "all" || mode == what; }
  bool wants(std::string_view net, const Size& size) const {
    return (std::string(net) + " " + size.str()).find(filter) != std::string::npos;
  }
  bool wants_any(const Cell& cell, const Size& size) const {
    return std::any_of(cell.nets.begin(), cell.nets.end(), [&](const NetFile& net) { return wants(net.name, size); });
  }
  const std::vector<Size>& sizes() const { return quick ? quick_grid() : grid(); }
};

// Each cell at each size, forward and training, against its peers.
void measure_cells(const Options& options, Report& report);
// A call per timestep with the state kept, against oneDNN.
void measure_stream(const Options& options, Report& report);
// What a step net costs beside its operators' kernels.
void measure_overhead(const Options& options, Report& report);
// Two layers in one step net, with and without the pass "wavefront".
void measure_wavefront(const Options& options, Report& report);

}  // namespace stepnet::bench
