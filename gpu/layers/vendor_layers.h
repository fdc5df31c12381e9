// Layers of LSTM, GRU or RNN that a library of the device's runs, below gpu/layers/recurrent_op.cc: cuDNN.
//
// Addresses are on the device, of elements of `dtype`; null where a state is zero or nobody wants a result. Y, dY, dX
// are never null. Work is queued on the current stream. T and B are not 0. Shapes: recurrent/layers/recurrent_op.h.
// Errors: what the library refuses is an Error with its words. Threads: may be called from several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "recurrent/layers/recurrent_op.h"

namespace stepnet::gpu {

struct VendorLayers {
  FlatArgs args;
  Shape x;
  DType dtype = DType::float32;       // or another floating type; halves are added up in float
  std::vector<int32_t> lengths = {};  // of each sample
  FlatWeights weights() const { return flat_weights(args, x); }
};

// What a run takes. The reserve goes from the forward run to the backward run, which changes it; with is_test there is
// none. The workspace is for one run. The states of the random numbers are there if something is dropped.
struct VendorBytes {
  size_t reserve = 0, workspace = 0, dropout_states = 0;
};
VendorBytes vendor_bytes(int device, const VendorLayers& layers);

struct VendorInputs {
  const void *x = nullptr, *hidden = nullptr, *cell = nullptr, *weights = nullptr;
  std::byte *reserve = nullptr, *workspace = nullptr, *dropout_states = nullptr;
  VendorBytes bytes;
};
struct VendorOutputs {
  void *y = nullptr, *hidden = nullptr, *cell = nullptr;
};
// Makes the states of the random numbers from `key`.
void run_vendor_layers(int device, const VendorLayers& layers, const VendorInputs& in, const VendorOutputs& out,
                       uint64_t key);

struct VendorGradients {
  const void *y = nullptr, *dy = nullptr, *d_last_hidden = nullptr, *d_last_cell = nullptr;
  void *dx = nullptr, *d_hidden = nullptr, *d_cell = nullptr, *d_weights = nullptr;  // d_weights holds zeros
};
void run_vendor_layers_backward(int device, const VendorLayers& layers, const VendorInputs& in,
                                const VendorGradients& gradients);

}  // namespace stepnet::gpu
