// Layers of LSTM, GRU and RNN by cuDNN (gpu/layers/vendor_layers.h).
//
// Weights are used as they are: recurrent/layers/vendor_weights.h says where each matrix and bias is, and before layers
// of some sizes run for the first time these places are compared with the addresses that cuDNN gives.
#include <cudnn.h>

#include <map>
#include <tuple>

#include "core/operator/own_draws.h"
#include "gpu/layers/vendor_layers.h"
#include "gpu/loops/matmul.h"
#include "gpu/runtime/device.h"
#include "gpu/vendor/cudnn.h"
#include "stepnet/error.h"
#include "stepnet/half.h"

namespace stepnet::gpu {
namespace {

int whole(int64_t size) {
  require(size >= 0 && size <= INT32_MAX, "cuDNN cannot count to {}", size);
  return static_cast<int>(size);
}

cudnnRNNMode_t mode_of(const FlatArgs& args) {
  if (args.mode == "lstm") return CUDNN_LSTM;
  if (args.mode == "gru") return CUDNN_GRU;
  return args.mode == "rnn_relu" ? CUDNN_RNN_RELU : CUDNN_RNN_TANH;
}

cudnnForwardMode_t forward_mode(const FlatArgs& args) {
  return args.is_test ? CUDNN_FWD_MODE_INFERENCE : CUDNN_FWD_MODE_TRAINING;
}

// All descriptors of a call.
struct Descriptors {
  DropoutDescriptor dropout;
  RnnDescriptor rnn;
  RnnDataDescriptor x, y;
  TensorDescriptor state;
  size_t weight_bytes = 0;
};

// Throws Error if this cuDNN has no layers of the type.
void check_type(DType type) {
  constexpr size_t kFirst = 91300;
  static const size_t version = cudnn_function<decltype(cudnnGetVersion)>("cudnnGetVersion")();
  require(type != DType::bfloat16 || version >= kFirst,
          "layers of bfloat16 need cuDNN 9.13, but this is {}.{}; cast to float or float16", version / 10000,
          version / 100 % 100);
}

RnnDescriptor rnn_descriptor(const VendorLayers& layers, const DropoutDescriptor& dropout) {
  static const auto set = cudnn_function<decltype(cudnnSetRNNDescriptor_v8)>("cudnnSetRNNDescriptor_v8");
  check_type(layers.dtype);
  const FlatArgs& args = layers.args;
  RnnDescriptor d = empty_rnn_descriptor();
  const int hidden = whole(args.hidden);
  const bool exact = layers.dtype == DType::float32 && !tf32_allowed();
  cudnn_call(set, "cudnnSetRNNDescriptor_v8", d.get(), CUDNN_RNN_ALGO_STANDARD, mode_of(args), CUDNN_RNN_DOUBLE_BIAS,
             args.bidirectional ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
             args.input_mode == "skip" ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT, cudnn_type(layers.dtype),
             cudnn_type(is_half(layers.dtype) ? DType::float32 : layers.dtype),
             exact ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH, whole(layers.x[2]), hidden, hidden, whole(args.layers),
             dropout.get(), static_cast<uint32_t>(CUDNN_RNN_PADDED_IO_ENABLED));
  return d;
}

// Throws Error unless cuDNN has the matrix or bias where we have it; null means that it is not there.
void check_place(const VendorLayers& layers, const char* what, int64_t part, int64_t gate, const FlatPlace& place,
                 const std::byte* base, const void* address) {
  if (place.shape.size() == 0) return;
  const auto expected = static_cast<int64_t>(dtype_size(layers.dtype)) * place.offset;
  const int64_t found = address ? static_cast<const std::byte*>(address) - base : -1;
  require(found == expected,
          "this version of cuDNN has {} {} of layer {} at byte {} of the weights, and not at {}: weights would mean "
          "something else than on the CPU",
          what, gate, part, found, expected);
}

void compare_places(const CudnnScope& scope, const VendorLayers& layers, const Descriptors& d, const void* weights) {
  static const auto get = cudnn_function<decltype(cudnnGetRNNWeightParams)>("cudnnGetRNNWeightParams");
  const FlatWeights w = layers.weights();
  const TensorDescriptor matrix = empty_tensor_descriptor(), bias = empty_tensor_descriptor();
  const auto* base = static_cast<const std::byte*>(weights);
  for (int64_t part = 0; part < w.layers * w.directions; ++part)
    for (int64_t gate = 0; gate < 2 * gates_of(w.cell); ++gate) {
      void *m = nullptr, *b = nullptr;
      cudnn_call(get, "cudnnGetRNNWeightParams", scope.handle(), d.rnn.get(), whole(part), d.weight_bytes, weights,
                 whole(gate), matrix.get(), &m, bias.get(), &b);
      check_place(layers, "matrix", part, gate, flat_matrix(w, part, gate), base, m);
      check_place(layers, "bias", part, gate, flat_bias(w, part, gate), base, b);
    }
}

void check_weights(const CudnnScope& scope, const VendorLayers& layers, Descriptors& d, const void* weights) {
  static const auto size = cudnn_function<decltype(cudnnGetRNNWeightSpaceSize)>("cudnnGetRNNWeightSpaceSize");
  cudnn_call(size, "cudnnGetRNNWeightSpaceSize", scope.handle(), d.rnn.get(), &d.weight_bytes);
  const FlatWeights w = layers.weights();
  const size_t ours = static_cast<size_t>(flat_size(w)) * dtype_size(layers.dtype);
  require(d.weight_bytes == ours, "this version of cuDNN has {} bytes of weights, not {}", d.weight_bytes, ours);
  using Key = std::tuple<std::string, int64_t, int64_t, int64_t, int64_t, bool, DType>;
  static std::mutex& mutex = *new std::mutex;
  static auto& compared = *new std::map<Key, bool>;
  const std::lock_guard lock(mutex);
  bool& done = compared[{layers.args.mode, w.layers, w.directions, w.inputs, w.hidden, w.skip, layers.dtype}];
  if (!done) compare_places(scope, layers, d, weights);
  done = true;
}

Descriptors descriptors(const CudnnScope& scope, const VendorLayers& layers, void* states, size_t bytes,
                        const uint64_t* key) {
  const FlatArgs& args = layers.args;
  Descriptors d;
  d.dropout = dropout_descriptor(scope, static_cast<float>(args.drop()), states, bytes, key);
  d.rnn = rnn_descriptor(layers, d.dropout);
  const int steps = whole(layers.x[0]), batch = whole(layers.x[1]), hidden = whole(args.hidden);
  d.x = rnn_data_descriptor(layers.dtype, steps, whole(layers.x[2]), layers.lengths);
  d.y = rnn_data_descriptor(layers.dtype, steps, whole(args.directions() * args.hidden), layers.lengths);
  d.state = tensor_descriptor(layers.dtype, {whole(args.parts()), batch, hidden});
  return d;
}

}  // namespace

VendorBytes vendor_bytes(int device, const VendorLayers& layers) {
  static const auto sizes = cudnn_function<decltype(cudnnGetRNNTempSpaceSizes)>("cudnnGetRNNTempSpaceSizes");
  const CudnnScope scope(device);
  const Descriptors d = descriptors(scope, layers, nullptr, 0, nullptr);
  VendorBytes bytes;
  cudnn_call(sizes, "cudnnGetRNNTempSpaceSizes", scope.handle(), d.rnn.get(), forward_mode(layers.args), d.x.get(),
             &bytes.workspace, &bytes.reserve);
  if (layers.args.is_test) bytes.reserve = 0;
  if (layers.args.drop() > 0) bytes.dropout_states = dropout_state_bytes(scope);
  return bytes;
}

void run_vendor_layers(int device, const VendorLayers& layers, const VendorInputs& in, const VendorOutputs& out,
                       uint64_t key) {
  static const auto forward = cudnn_function<decltype(cudnnRNNForward)>("cudnnRNNForward");
  if (layers.args.drop() > 0) note_own_draws();
  const CudnnScope scope(device);
  Descriptors d = descriptors(scope, layers, in.dropout_states, in.bytes.dropout_states, &key);
  check_weights(scope, layers, d, in.weights);
  const bool has_cell = layers.args.cell() == CellKind::lstm;
  cudnn_call(forward, "cudnnRNNForward", scope.handle(), d.rnn.get(), forward_mode(layers.args), nullptr, d.x.get(),
             in.x, d.y.get(), out.y, d.state.get(), in.hidden, out.hidden, d.state.get(), has_cell ? in.cell : nullptr,
             out.cell, d.weight_bytes, in.weights, in.bytes.workspace, static_cast<void*>(in.workspace),
             in.bytes.reserve, static_cast<void*>(in.reserve));
}

// Data first: it leaves in the reserve what the weights' gradient reads.
void run_vendor_layers_backward(int device, const VendorLayers& layers, const VendorInputs& in,
                                const VendorGradients& g) {
  static const auto data = cudnn_function<decltype(cudnnRNNBackwardData_v8)>("cudnnRNNBackwardData_v8");
  static const auto weights = cudnn_function<decltype(cudnnRNNBackwardWeights_v8)>("cudnnRNNBackwardWeights_v8");
  const CudnnScope scope(device);
  Descriptors d = descriptors(scope, layers, in.dropout_states, in.bytes.dropout_states, nullptr);
  check_weights(scope, layers, d, in.weights);
  const bool has_cell = layers.args.cell() == CellKind::lstm;
  auto* workspace = static_cast<void*>(in.workspace);
  auto* reserve = static_cast<void*>(in.reserve);
  cudnn_call(data, "cudnnRNNBackwardData_v8", scope.handle(), d.rnn.get(), nullptr, d.y.get(), g.y, g.dy, d.x.get(),
             g.dx, d.state.get(), in.hidden, g.d_last_hidden, g.d_hidden, d.state.get(), has_cell ? in.cell : nullptr,
             g.d_last_cell, g.d_cell, d.weight_bytes, in.weights, in.bytes.workspace, workspace, in.bytes.reserve,
             reserve);
  if (!g.d_weights) return;
  cudnn_call(weights, "cudnnRNNBackwardWeights_v8", scope.handle(), d.rnn.get(), CUDNN_WGRAD_MODE_ADD, nullptr,
             d.x.get(), in.x, d.state.get(), in.hidden, d.y.get(), g.y, d.weight_bytes, g.d_weights, in.bytes.workspace,
             workspace, in.bytes.reserve, reserve);
}

}  // namespace stepnet::gpu
