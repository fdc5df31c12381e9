// CUDA kernels for Recurrent, RecurrentGradient, RecurrentParamSet and RecurrentParamGet: what the library that runs
// the layers (gpu/layers/vendor_layers.h) does not do by itself. Meaning: see recurrent/layers/recurrent_op.cc.
//
// The scratch is the library's reserve. The gradient overwrites it, so unless it is written in place a copy is made.
#include "gpu/layers/vendor_layers.h"
#include "stepnet/device.h"
#include "stepnet/operator.h"
#include "stepnet/tensor.h"

namespace stepnet::gpu {
namespace {

using CallIn = RecurrentIn;
using CallOut = RecurrentOut;
using GradIn = RecurrentGradientIn;
using GradOut = RecurrentGradientOut;

Tensor given(const Call& call, int i) { return call.has(i) ? call.in(i) : Tensor(); }
Tensor* wanted(const Call& call, int o) { return call.wants(o) ? &call.out(o) : nullptr; }

// Of the sequence, which every call has.
Device place_of(const Call& call) { return call.in(CallIn::x).device(); }

// Bytes that the library works on.
Tensor workspace_on(Device place, size_t count) {
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::empty(DType::uint8, {static_cast<int64_t>(count)}, place);
}

VendorLayers layers_of(const FlatArgs& args, const Call& call, int lengths) {
  const Tensor& x = call.in(CallIn::x);
  VendorLayers layers{args, x.shape(), x.dtype()};
  layers.lengths.assign(static_cast<size_t>(x.dim(1)), static_cast<int32_t>(x.dim(0)));
  if (!call.has(lengths)) return layers;
  const Tensor on_host = copied_to(call.in(lengths), {});  // waits: the library reads them on the host
  check_flat_lengths(on_host, x.shape());
  layers.lengths.assign(on_host.span<int32_t>().begin(), on_host.span<int32_t>().end());
  return layers;
}

void copy_or_zero(const Tensor& from, Tensor* to) {
  if (!to) return;
  if (from.defined())
    to->copy_from(from.reshaped(to->shape()));
  else
    to->fill_zero();
}

VendorInputs inputs_of(const Call& call, const VendorBytes& bytes, Tensor& workspace) {
  VendorInputs in;
  in.x = call.in(CallIn::x).raw();
  in.weights = call.in(CallIn::weights).raw();
  if (call.has(CallIn::hidden)) in.hidden = call.in(CallIn::hidden).raw();
  if (call.has(CallIn::cell)) in.cell = call.in(CallIn::cell).raw();
  in.bytes = bytes;
  in.workspace = workspace.raw();
  return in;
}

// What the backward run is given: the output with as many bytes, or some for this run alone.
Tensor reserve_in(Tensor* output, size_t count, Device place) {
  const MemoryScope scope(MemoryCategory::reserve);
  if (!output) return Tensor::empty(DType::uint8, {static_cast<int64_t>(count)}, place);
  output->resize(DType::uint8, {static_cast<int64_t>(count)}, place);
  return *output;
}

void forward_of_nothing(const FlatArgs& args, Call& call) {
  const bool has_cell = args.cell() == CellKind::lstm;
  copy_or_zero({}, wanted(call, CallOut::y));
  copy_or_zero(given(call, CallIn::hidden), wanted(call, CallOut::hidden));
  copy_or_zero(has_cell ? given(call, CallIn::cell) : Tensor(), wanted(call, CallOut::cell));
  for (const int o : {CallOut::scratch, CallOut::dropout_states}) reserve_in(wanted(call, o), 0, place_of(call));
}

void forward(const FlatArgs& args, Call& call) {
  const Tensor& x = call.in(CallIn::x);
  if (x.dim(0) == 0 || x.dim(1) == 0) return forward_of_nothing(args, call);
  const Device place = place_of(call);
  const VendorLayers layers = layers_of(args, call, CallIn::lengths);
  const VendorBytes bytes = vendor_bytes(place.index, layers);
  Tensor workspace = workspace_on(place, bytes.workspace);
  Tensor reserve = reserve_in(wanted(call, CallOut::scratch), bytes.reserve, place);
  Tensor states = reserve_in(wanted(call, CallOut::dropout_states), bytes.dropout_states, place);
  VendorInputs in = inputs_of(call, bytes, workspace);
  in.reserve = reserve.raw();
  in.dropout_states = states.raw();
  const Shape y_shape{x.dim(0), x.dim(1), args.directions() * args.hidden};
  Tensor y = call.wants(CallOut::y) ? call.out(CallOut::y) : Tensor::empty(x.dtype(), y_shape, place);
  VendorOutputs out;
  out.y = y.raw();
  if (call.wants(CallOut::hidden)) out.hidden = call.out(CallOut::hidden).raw();
  const bool has_cell = args.cell() == CellKind::lstm;
  if (has_cell && call.wants(CallOut::cell)) out.cell = call.out(CallOut::cell).raw();
  if (!has_cell) copy_or_zero({}, wanted(call, CallOut::cell));
  run_vendor_layers(place.index, layers, in, out, flat_key(args, call.random_key));
}

// Of no timesteps or samples: the states go through as they are.
void gradient_of_nothing(const FlatArgs& args, Call& call) {
  const bool has_cell = args.cell() == CellKind::lstm;
  copy_or_zero({}, wanted(call, GradOut::dx));
  copy_or_zero(given(call, GradIn::d_hidden), wanted(call, GradOut::d_hidden));
  copy_or_zero(has_cell ? given(call, GradIn::d_cell) : Tensor(), wanted(call, GradOut::d_cell));
  copy_or_zero({}, wanted(call, GradOut::d_weights));
}

// The reserve, for a run that changes it.
Tensor own_reserve(const Call& call, const VendorBytes& bytes) {
  require(call.has(GradIn::scratch), "the gradient reads the scratch of Recurrent, which is missing");
  const Tensor& given = call.in(GradIn::scratch);
  require(given.bytes() == bytes.reserve, "the scratch is {}, but cuDNN's reserve for this call has {} bytes", given,
          bytes.reserve);
  Tensor* out = wanted(call, GradOut::scratch);
  const MemoryScope scope(MemoryCategory::reserve);
  if (!out) return given.clone();
  if (out->raw() != given.raw()) out->copy_from(given);
  return *out;
}

Tensor dropout_states(const Call& call, const VendorBytes& bytes) {
  const Tensor states = given(call, GradIn::dropout_states);
  if (bytes.dropout_states == 0 || (states.defined() && states.bytes() == bytes.dropout_states)) return states;
  return reserve_in(wanted(call, GradOut::dropout_states), bytes.dropout_states, place_of(call));
}

VendorGradients gradients_of(const FlatArgs& args, const Call& call, Tensor& dy, Tensor& dx) {
  VendorGradients g;
  require(call.has(GradIn::y), "on a GPU the gradient reads OUTPUT, which is missing");
  g.y = call.in(GradIn::y).raw();
  g.dy = dy.raw();
  g.dx = dx.raw();
  const bool has_cell = args.cell() == CellKind::lstm;
  if (call.has(GradIn::d_hidden)) g.d_last_hidden = call.in(GradIn::d_hidden).raw();
  if (has_cell && call.has(GradIn::d_cell)) g.d_last_cell = call.in(GradIn::d_cell).raw();
  if (call.wants(GradOut::d_hidden)) g.d_hidden = call.out(GradOut::d_hidden).raw();
  if (has_cell && call.wants(GradOut::d_cell)) g.d_cell = call.out(GradOut::d_cell).raw();
  if (call.wants(GradOut::d_weights)) g.d_weights = call.out(GradOut::d_weights).raw();
  return g;
}

void backward(const FlatArgs& args, Call& call) {
  const Tensor& x = call.in(CallIn::x);
  if (x.dim(0) == 0 || x.dim(1) == 0) return gradient_of_nothing(args, call);
  const Device place = place_of(call);
  const VendorLayers layers = layers_of(args, call, GradIn::lengths);
  const VendorBytes bytes = vendor_bytes(place.index, layers);
  Tensor workspace = workspace_on(place, bytes.workspace), reserve = own_reserve(call, bytes);
  Tensor states = dropout_states(call, bytes);
  VendorInputs in = inputs_of(call, bytes, workspace);
  in.reserve = reserve.raw();
  in.dropout_states = states.raw();
  const Shape y_shape{x.dim(0), x.dim(1), args.directions() * args.hidden};
  Tensor dy = call.has(GradIn::dy) ? call.in(GradIn::dy) : Tensor::zeros(x.dtype(), y_shape, place);
  Tensor dx = call.wants(GradOut::dx) ? call.out(GradOut::dx) : Tensor::empty(x.dtype(), x.shape(), place);
  if (call.has(GradIn::lengths)) dx.fill_zero();  // the padding's
  if (call.wants(GradOut::d_weights)) call.out(GradOut::d_weights).fill_zero();
  if (args.cell() != CellKind::lstm) copy_or_zero({}, wanted(call, GradOut::d_cell));
  run_vendor_layers_backward(place.index, layers, in, gradients_of(args, call, dy, dx));
}

Registration kernels(const char* type, void (*run)(const FlatArgs&, Call&)) {
  Registration r;
  r.kernels_only = true;
  r.spec.type = type;
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    Kernel kernel = adapt_kernel<FlatArgs>(run);
    kernel.device = DeviceKind::cuda;
    kernel.dtype = dtype;
    r.spec.kernels.push_back(std::move(kernel));
  }
  return r;
}

REGISTER(recurrent_cuda) { return kernels("Recurrent", forward); }
REGISTER(recurrent_gradient_cuda) { return kernels("RecurrentGradient", backward); }
REGISTER(recurrent_param_set_cuda) { return kernels("RecurrentParamSet", set_parameter); }
REGISTER(recurrent_param_get_cuda) { return kernels("RecurrentParamGet", get_parameter); }

}  // namespace
}  // namespace stepnet::gpu
