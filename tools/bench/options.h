// What the command line asks for.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tools/bench/cell_case.h"

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

}  // namespace stepnet::bench
