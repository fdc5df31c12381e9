// Runs of Recurrent by step nets: LSTM, GRU or RNN (recurrent/form/cell_operators.h) in a workspace of the run's own.
//
// Nothing is kept between runs: a gradient runs the layers forward once more, with the same draws.
// In a dry run (core/tensor/dry_device.h) the nets run dry. Tensors are on the CPU. Threads: as many runs as there are
// callers.
#pragma once

#include "core/operator/operator.h"
#include "recurrent/layers/flat_recurrent.h"

namespace stepnet {

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
