// How one RNN, GRU or LSTM becomes RecurrentNetworks in short form; see cell_operators.h for its inputs and outputs.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/net.pb.h"

namespace stepnet {

struct CellArgs {
  int64_t hidden = 0;
  int64_t layers = 1;
  bool bidirectional = false;
  float dropout = 0;
  bool is_test = false;
  std::string nonlinearity;
  bool linear_before_reset = true;
  float forget_bias = 0;
};

// Throws Error if the number of inputs does not fit.
std::vector<OperatorDef> expand_layers(const OperatorDef& op, const CellArgs& args);

}  // namespace stepnet
