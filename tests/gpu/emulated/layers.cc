// Layers of the imitated device: by step nets, in float for halves. What the real library needs is asked for, and
// checked to be there.
#include "gpu/layers/vendor_layers.h"

#include <algorithm>
#include <cstring>

#include "gpu/runtime/stream.h"
#include "recurrent/layers/recurrent_op.h"
#include "stepnet/half.h"
#include "stepnet/run_context.h"

namespace stepnet::gpu {
namespace {

constexpr size_t kWorkspace = 64, kReserve = 24, kStates = 16;
constexpr uint8_t kSpoiled = 0xEE;

// The device's memory is the host's.
Tensor at(const void* data, DType dtype, const Shape& shape) {
  if (!data) return {};
  const size_t bytes = static_cast<size_t>(shape.size()) * dtype_size(dtype);
  return Tensor::view(std::make_shared<Storage>(nullptr, const_cast<void*>(data), bytes), 0, dtype, shape);
}

Tensor read(const void* data, DType dtype, const Shape& shape) {
  const Tensor given = at(data, dtype, shape);
  if (!given.defined() || !is_half(dtype)) return given;
  Tensor wide = Tensor::empty(DType::float32, shape);
  with_half(dtype, [&](auto zero) { std::ranges::copy(given.span<decltype(zero)>(), wide.data<float>()); });
  return wide;
}

// What is written. Halves get their values in the end.
struct Results {
  std::vector<std::pair<Tensor, Tensor>> wide_and_half = {};

  Tensor at(void* data, DType dtype, const Shape& shape) {
    const Tensor place = gpu::at(data, dtype, shape);
    if (!place.defined() || !is_half(dtype)) return place;
    wide_and_half.emplace_back(Tensor::zeros(DType::float32, shape), place);
    return wide_and_half.back().first;
  }
  void finish() {
    for (auto& [wide, half] : wide_and_half)
      with_half(half.dtype(), [&](auto zero) { std::ranges::copy(wide.span<float>(), half.data<decltype(zero)>()); });
  }
};

Shape state_shape(const VendorLayers& l) { return {l.args.parts(), l.x[1], l.args.hidden}; }
Shape y_shape(const VendorLayers& l) { return {l.x[0], l.x[1], l.args.directions() * l.args.hidden}; }

FlatInputs tensors_of(const VendorLayers& l, const VendorInputs& in) {
  const Shape weights{flat_size(l.weights())}, state = state_shape(l);
  return {read(in.x, l.dtype, l.x), read(in.hidden, l.dtype, state), read(in.cell, l.dtype, state),
          read(in.weights, l.dtype, weights), Tensor::of<int32_t>({l.x[1]}, l.lengths)};
}

}  // namespace

VendorBytes vendor_bytes(int, const VendorLayers& layers) {
  return {layers.args.is_test ? 0 : kReserve, kWorkspace, layers.args.drop() > 0 ? kStates : 0};
}

void run_vendor_layers(int device, const VendorLayers& layers, const VendorInputs& in, const VendorOutputs& out,
                       uint64_t key) {
  emulated::enqueue(current_stream(device), [=] {
    std::memset(in.workspace, kSpoiled, kWorkspace);
    Results results;
    const Shape state = state_shape(layers);
    Tensor y = results.at(out.y, layers.dtype, y_shape(layers)), hidden = results.at(out.hidden, layers.dtype, state),
           cell = results.at(out.cell, layers.dtype, state);
    run_flat(layers.args, tensors_of(layers, in),
             {&y, hidden.defined() ? &hidden : nullptr, cell.defined() ? &cell : nullptr}, key, RunContext{});
    results.finish();
    if (in.bytes.reserve > 0) std::memcpy(in.reserve, &key, sizeof(key));
    if (in.bytes.dropout_states > 0) std::memcpy(in.dropout_states, &key, sizeof(key));
  });
}

// Draws by the reserve and, as the real one may, spoils it.
void run_vendor_layers_backward(int device, const VendorLayers& layers, const VendorInputs& in,
                                const VendorGradients& g) {
  emulated::enqueue(current_stream(device), [=] {
    std::memset(in.workspace, kSpoiled, kWorkspace);
    uint64_t key = 0;
    std::memcpy(&key, in.reserve, sizeof(key));
    std::memset(in.reserve, kSpoiled, kReserve);
    const Shape state = state_shape(layers), weights{flat_size(layers.weights())};
    const DType dtype = layers.dtype;
    Results results;
    Tensor dx = results.at(g.dx, dtype, layers.x), hidden = results.at(g.d_hidden, dtype, state),
           cell = results.at(g.d_cell, dtype, state), w = results.at(g.d_weights, dtype, weights);
    const FlatOutputGradients dy = {read(g.dy, dtype, y_shape(layers)), read(g.d_last_hidden, dtype, state),
                                    read(g.d_last_cell, dtype, state)};
    run_flat_gradient(
        layers.args, tensors_of(layers, in), dy,
        {&dx, hidden.defined() ? &hidden : nullptr, cell.defined() ? &cell : nullptr, w.defined() ? &w : nullptr}, key,
        RunContext{});
    results.finish();
  });
}

}  // namespace stepnet::gpu
