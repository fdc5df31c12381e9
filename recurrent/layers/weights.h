// Weights of LSTM, GRU and RNN layers between the conventions of Stepnet, PyTorch and ONNX.
//
//            gates of LSTM   gates of GRU               of each layer
//   stepnet  i, f, o, g      reset, update, candidate   in each direction w_ih, w_hh, b_ih, b_hh
//   pytorch  i, f, g, o      r, z, n: the same          in each direction weight_ih, weight_hh, bias_ih, bias_hh
//   onnx     i, o, f, c      z, r, h                    W [D, G * H, I], R [D, G * H, H], B [D, 2 * G * H]
//
// Matrices are [G * H, inputs]. All three have two bias vectors, which stay apart: ONNX has them one behind the other
// in B, b_ih first. Values are only moved, so that there and back is the identity, in any element type. Threads: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "stepnet/tensor.h"

namespace stepnet {

enum class WeightOrder { stepnet, pytorch, onnx };
enum class CellKind { lstm, gru, rnn };

struct CellWeights {
  CellKind cell = CellKind::lstm;
  int layers = 1;
  int directions = 1;
};

// The names of the tensors in order: "weight_ih_l0", ..., "weight_ih_l0_reverse", ...; of ONNX "W_l0", "R_l0", "B_l0".
std::vector<std::string> weight_names(const CellWeights& cell, WeightOrder order);

// `weights` stand in the order of weight_names(cell, from); the result in that of `to`. Throws Error that names the
// tensor whose shape does not fit.
std::vector<Tensor> convert_weights(const CellWeights& cell, WeightOrder from, WeightOrder to,
                                    const std::vector<Tensor>& weights);

}  // namespace stepnet
