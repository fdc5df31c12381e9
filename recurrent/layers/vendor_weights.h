// All weights of LSTM, GRU and RNN layers in one vector, in the order of cuDNN, and the way to the step nets' tensors.
//
// First come the matrices, then the bias vectors. Both go by layer, and in it by direction (forward, then reverse), and
// in that by kind: those of the input for each gate, then those of the state for each gate. A matrix is [H, inputs] in
// row-major order, a bias [H]. The gates of LSTM are i, f, g, o (g is the candidate), of GRU reset, update, candidate.
// Layers above the first read D * H values. With `skip` the first layer has no matrices of the input: these are the
// identity. So the vector has L * D * G * H * (H + 2) elements and those of the input's matrices.
//
// Source: cudnnGetRNNWeightParams of cuDNN, whose "pseudo-layers" are our layers and directions, and whose "linLayerID"
// is kind * G + gate. cuDNN 9.19 gives these places for LSTM, GRU and RNN of two layers, in one direction and in both,
// with and without `skip`; a GPU compares them with those of its library before it uses weights. LstmForwardTraining in
// Apache MXNet's rnn_impl.h reads the same vector on the CPU.
//
// Threads: pure functions.
#pragma once

#include <vector>

#include "recurrent/layers/weights.h"

namespace stepnet {

struct FlatWeights {
  CellKind cell = CellKind::lstm;
  int64_t layers = 1, directions = 1;
  int64_t inputs = 0, hidden = 0;
  bool skip = false;
};

// Elements of the vector from `offset` on, as a tensor of that shape.
struct FlatPlace {
  int64_t offset = 0;
  Shape shape;
};

int64_t gates_of(CellKind cell);
int64_t flat_size(const FlatWeights& w);

// `part` is layer * D + direction; a `gate` from G on is the state's. A matrix that is not there has 0 rows.
FlatPlace flat_matrix(const FlatWeights& w, int64_t part, int64_t gate);
FlatPlace flat_bias(const FlatWeights& w, int64_t part, int64_t gate);

// For each part w_ih [G * H, inputs], w_hh [G * H, H], b_ih [G * H] and b_hh [G * H], with gates in Stepnet's order;
// what is skipped is the identity for each gate.
std::vector<Tensor> from_flat(const FlatWeights& w, const Tensor& flat);
// The way back, into `flat`, which has its type and size. Tensors that are undefined leave zeros.
void to_flat(const FlatWeights& w, const std::vector<Tensor>& weights, Tensor& flat);

}  // namespace stepnet
