// Layers of RNN, GRU and LSTM for tests: the operator in a net, its feeds, and what PyTorch and ONNX define.
//
// The definitions are plain loops over weights in the library's own order, written from its documentation.
// Threads: pure functions.
#pragma once

#include "recurrent/layers/weights.h"
#include "tests/recurrent/cell_files.h"

namespace stepnet::testing {

struct Layers {
  CellKind cell = CellKind::rnn;
  int layers = 1, directions = 1;
  bool lengths = false;
  bool initial = true;  // initial states are given
  int64_t width = 3, inputs = 2;
  std::string nonlinearity = "tanh";
  bool linear_before_reset = true;
  float forget_bias = 0;
  float dropout = 0;
  bool is_test = false;

  CellWeights weights() const { return {cell, layers, directions}; }
};

std::string name_of(const Layers& l);
void PrintTo(const Layers& l, std::ostream* out);

// One operator "cells" with outputs Y, h_n and, of LSTM, c_n. Weights have the names of weight_names.
NetDef net_of(const Layers& l);
Feeds feeds_of(const Layers& l, DType dtype, int64_t steps, int64_t batch);

// Y, h_n and c_n in Stepnet's shapes, from feeds in Stepnet's order.
std::map<std::string, Tensor> run_as_pytorch(const Layers& l, const Feeds& feeds);
std::map<std::string, Tensor> run_as_onnx(const Layers& l, const Feeds& feeds);

}  // namespace stepnet::testing
