// Nets of several kinds, with sizes drawn at random, for tests that compare estimates with real runs.
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/op_spec.h"

namespace stepnet::testing {

struct EstimateNet {
  std::string name;
  NetDef net;                                    // short form
  std::map<std::string, TensorType> data;        // that is fed
  std::map<std::string, TensorType> parameters;  // fed too, and trained
  std::string loss;                              // differentiated; it need not be a single value
};

// `draw` chooses the sizes; the same one gives the same net.
std::vector<EstimateNet> estimate_nets(uint64_t draw);
// The cells of tools/examples/cells.
std::vector<EstimateNet> estimate_cells(uint64_t draw);

void PrintTo(const EstimateNet& net, std::ostream* out);

}  // namespace stepnet::testing
