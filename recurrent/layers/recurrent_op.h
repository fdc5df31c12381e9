// Recurrent, RecurrentGradient, RecurrentParamSet and RecurrentParamGet: layers of LSTM, GRU or RNN as one operator
// with one vector of weights, as in cuDNN. What their kernels for the CPU and for GPUs share.
//
// Blobs: X [T, B, I]; hidden and cell states [L * D, B, H], of one layer in one direction also [B, H]; Y [T, B, D * H];
// weights as recurrent/layers/vendor_weights.h says; lengths int32 [B], if samples have them.
// Threads: pure functions; as many runs as there are callers.
#pragma once

#include <string>

#include "recurrent/layers/vendor_weights.h"
#include "stepnet/op_spec.h"
#include "stepnet/operator.h"

namespace stepnet {

struct FlatArgs {
  int64_t hidden = 0, layers = 1;
  bool bidirectional = false;
  std::string mode, input_mode;
  float dropout = 1;
  int64_t seed = 0;
  bool is_test = false;
  // Of RecurrentParamSet and RecurrentParamGet:
  int64_t layer = 0;
  std::string param_type, input_type;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t parts() const { return layers * directions(); }
  CellKind cell() const { return mode == "lstm" ? CellKind::lstm : mode == "gru" ? CellKind::gru : CellKind::rnn; }
  // The probability of 0 between layers: in the public format 1, the default, means none.
  double drop() const { return is_test || layers == 1 || dropout >= 1 ? 0 : static_cast<double>(dropout); }
};

// Indices of inputs and outputs, as the public format has them; what is behind `// ours` is Stepnet's own.
struct RecurrentIn {
  static constexpr int x = 0, hidden = 1, cell = 2, weights = 3, lengths = 4;  // ours: lengths
};
struct RecurrentOut {
  static constexpr int y = 0, hidden = 1, cell = 2, scratch = 3, dropout_states = 4;
};
struct RecurrentGradientIn {
  static constexpr int x = 0, hidden = 1, cell = 2, weights = 3, scratch = 4, y = 5, dy = 6;
  static constexpr int d_hidden = 7, d_cell = 8, dropout_states = 9, lengths = 10;  // ours
};
struct RecurrentGradientOut {
  static constexpr int dx = 0, d_hidden = 1, d_cell = 2, d_weights = 3, dropout_states = 4, scratch = 5;
};

// Bytes of the scratch on the CPU: the key of the dropouts' draws.
constexpr int64_t kKeyBytes = 8;
// On a GPU it is cuDNN's reserve. This is what cudnnGetRNNTempSpaceSizes of cuDNN 9.19 says for its standard algorithm,
// for estimates; a run asks the library.
int64_t reserve_bytes(const FlatArgs& args, const Shape& x, DType dtype);

// The layers for sequences of this shape; throws Error if it is not [T, B, I].
FlatWeights flat_weights(const FlatArgs& args, const Shape& x);

// The key of a run's draws, from that of the operator and its seed.
uint64_t flat_key(const FlatArgs& args, uint64_t random_key);

// Which elements of the vector RecurrentParamSet and RecurrentParamGet mean. Throws Error.
FlatPlace named_place(const FlatArgs& args, const Shape& x);

// Copies the parameter on whatever device it is on.
void set_parameter(const FlatArgs& args, Call& call);
void get_parameter(const FlatArgs& args, Call& call);

// Throws Error unless there is one length per sample, each from 0 to T; the tensor is on the CPU.
void check_flat_lengths(const Tensor& lengths, const Shape& x);

// Runs by step nets: LSTM, GRU or RNN (recurrent/form/layer_ops.h) in a workspace of the run's own. Nothing is kept
// between runs: a gradient runs the layers forward once more, with the same draws. In a dry run
// (core/tensor/dry_device.h) the nets run dry. Tensors are on the CPU.
struct FlatInputs {
  Tensor x, hidden, cell, weights, lengths;  // undefined: absent
};
struct FlatOutputs {
  Tensor *y = nullptr, *hidden = nullptr, *cell = nullptr;  // null: not wanted; else they have their types
};
struct FlatOutputGradients {
  Tensor y, hidden, cell;  // undefined: zero
};
struct FlatInputGradients {
  Tensor *x = nullptr, *hidden = nullptr, *cell = nullptr, *weights = nullptr;  // as in FlatOutputs
};

void run_flat(const FlatArgs& args, const FlatInputs& in, const FlatOutputs& out, uint64_t key, const RunContext& run);
void run_flat_gradient(const FlatArgs& args, const FlatInputs& in, const FlatOutputGradients& dy,
                       const FlatInputGradients& dx, uint64_t key, const RunContext& run);

// The arguments that say which layers there are.
OpBuilder<FlatArgs>& declare_layers(OpBuilder<FlatArgs>& builder);

}  // namespace stepnet
