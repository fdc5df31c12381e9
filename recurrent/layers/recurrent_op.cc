#include "recurrent/layers/recurrent_op.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/tensor/dry_device.h"
#include "recurrent/form/layer_ops.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

constexpr const char *kX = "X", *kHidden = "hidden", *kCell = "cell", *kLengths = "lengths";
constexpr const char *kY = "Y", *kLastHidden = "last_hidden", *kLastCell = "last_cell";

std::string given_gradient(const char* output) { return fmt::format("given_{}_grad", output); }

std::string weight_name(int64_t i) {
  constexpr const char* kinds[] = {"w_ih", "w_hh", "b_ih", "b_hh"};
  return fmt::format("{}_{}", kinds[i % 4], i / 4);
}

bool is_lstm(const FlatArgs& args) { return args.cell() == CellKind::lstm; }

// The layers as one operator, for nets that are expanded by their caller; outputs that nobody needs have no name.
NetDef layers_net(const FlatArgs& args, const FlatInputs& in, bool y, bool hidden, bool cell) {
  NetDef net;
  net.set_name("Recurrent");
  OperatorDef& op = *net.add_op();
  op.set_name("layers");
  op.set_type(is_lstm(args) ? "LSTM" : args.cell() == CellKind::gru ? "GRU" : "RNN");
  op.add_input(kX);
  op.add_input(in.hidden.defined() ? kHidden : "");
  if (is_lstm(args)) op.add_input(in.cell.defined() ? kCell : "");
  for (int64_t i = 0; i < 4 * args.parts(); ++i) op.add_input(weight_name(i));
  if (in.lengths.defined()) op.add_input(kLengths);
  op.add_output(y ? kY : "");
  op.add_output(hidden ? kLastHidden : "");
  if (is_lstm(args)) op.add_output(cell ? kLastCell : "");
  *op.add_arg() = make_arg("hidden", args.hidden);
  *op.add_arg() = make_arg("layers", args.layers);
  if (args.bidirectional) *op.add_arg() = make_arg("bidirectional", 1);
  if (args.drop() > 0) *op.add_arg() = make_arg("dropout", static_cast<float>(args.drop()));
  if (args.mode == "rnn_relu") *op.add_arg() = make_arg("nonlinearity", "relu");
  for (const std::string& name : op.input())
    if (!name.empty()) net.add_external_input(name);
  for (const std::string& name : op.output())
    if (!name.empty()) net.add_external_output(name);
  return net;
}

Tensor state_of(const FlatArgs& args, const FlatInputs& in, const Tensor& state) {
  return state.defined() ? state.reshaped({args.parts(), in.x.dim(1), args.hidden}) : state;
}

void feed(const FlatArgs& args, const FlatInputs& in, Workspace& blobs) {
  blobs.tensor(kX) = in.x;
  if (in.hidden.defined()) blobs.tensor(kHidden) = state_of(args, in, in.hidden);
  if (in.cell.defined()) blobs.tensor(kCell) = state_of(args, in, in.cell);
  if (in.lengths.defined()) blobs.tensor(kLengths) = in.lengths;
  const std::vector<Tensor> weights = from_flat(flat_weights(args, in.x.shape()), in.weights);
  for (size_t i = 0; i < weights.size(); ++i) blobs.tensor(weight_name(static_cast<int64_t>(i))) = weights[i];
}

void run_net(const NetDef& net, Workspace& blobs, uint64_t key, const RunContext& around) {
  RunContext run;
  run.seed = key;
  run.out = around.out;
  run.anomalies = around.anomalies;
  run_net_once(net, blobs, run, NetOptions{.release_intermediates = true});
}

void take(const Workspace& blobs, const std::string& name, Tensor* to) {
  if (!to) return;
  const Blob* blob = blobs.find(name);
  if (!blob || blob->empty()) return to->fill_zero();
  to->copy_from(blob->tensor().reshaped(to->shape()));
}

void check_lengths(const FlatInputs& in) {
  if (in.lengths.defined() && !in.lengths.is_dry()) check_flat_lengths(in.lengths, in.x.shape());
}

// Which blob's gradient each result is, and where the result goes.
struct Wanted {
  std::set<std::string> names;
  std::map<std::string, GradientName> found;

  std::string of(const std::string& blob) const {
    const auto it = found.find(blob);
    return it == found.end() ? "" : it->second.dense;
  }
};

Wanted wanted_of(const FlatArgs& args, const FlatInputGradients& dx) {
  Wanted wanted;
  if (dx.x) wanted.names.insert(kX);
  if (dx.hidden) wanted.names.insert(kHidden);
  if (dx.cell && is_lstm(args)) wanted.names.insert(kCell);
  if (dx.weights)
    for (int64_t i = 0; i < 4 * args.parts(); ++i) wanted.names.insert(weight_name(i));
  return wanted;
}

// Adds the backward pass; false if all gradients are zero.
bool differentiate(NetDef& net, const FlatOutputGradients& dy, Wanted& wanted) {
  GradientRequest request;
  for (const auto& [name, gradient] : {std::pair{kY, &dy.y}, {kLastHidden, &dy.hidden}, {kLastCell, &dy.cell}}) {
    if (!gradient->defined() || std::ranges::count(net.external_output(), name) == 0) continue;
    request.targets.emplace_back(name, given_gradient(name));
    net.add_external_input(given_gradient(name));
  }
  if (request.targets.empty() || wanted.names.empty()) return false;
  request.wanted = wanted.names;
  try {
    wanted.found = add_gradient_operators(net, request).gradients;
  } catch (const NoDependence&) {
    return false;
  }
  net.clear_external_output();
  for (const std::string& name : wanted.names)
    if (!wanted.of(name).empty()) net.add_external_output(wanted.of(name));
  return true;
}

void take_weights(const FlatArgs& args, const FlatInputs& in, const Workspace& blobs, const Wanted& wanted,
                  Tensor* to) {
  if (!to) return;
  std::vector<Tensor> gradients;
  for (int64_t i = 0; i < 4 * args.parts(); ++i) {
    const Blob* blob = blobs.find(wanted.of(weight_name(i)));
    gradients.push_back(blob && !blob->empty() ? blob->tensor() : Tensor());
  }
  to_flat(flat_weights(args, in.x.shape()), gradients, *to);
}

}  // namespace

void run_flat(const FlatArgs& args, const FlatInputs& in, const FlatOutputs& out, uint64_t key, const RunContext& run) {
  check_lengths(in);
  NetDef net = layers_net(args, in, out.y != nullptr, out.hidden != nullptr, out.cell != nullptr);
  expand_cell_operators(net);
  for (OperatorDef& op : *net.mutable_op())
    if (op.HasExtension(recurrent)) op.MutableExtension(recurrent)->set_forward_only(true);
  expand_recurrent(net);
  Workspace blobs;
  feed(args, in, blobs);
  run_net(net, blobs, key, run);
  take(blobs, kY, out.y);
  take(blobs, kLastHidden, out.hidden);
  take(blobs, is_lstm(args) ? kLastCell : "", out.cell);
}

void run_flat_gradient(const FlatArgs& args, const FlatInputs& in, const FlatOutputGradients& dy,
                       const FlatInputGradients& dx, uint64_t key, const RunContext& run) {
  check_lengths(in);
  NetDef net = layers_net(args, in, dy.y.defined(), dy.hidden.defined(), dy.cell.defined());
  expand_recurrent(net);
  Wanted wanted = wanted_of(args, dx);
  Workspace blobs;
  if (differentiate(net, dy, wanted)) {
    feed(args, in, blobs);
    if (dy.y.defined()) blobs.tensor(given_gradient(kY)) = dy.y;
    if (dy.hidden.defined()) blobs.tensor(given_gradient(kLastHidden)) = state_of(args, in, dy.hidden);
    if (dy.cell.defined()) blobs.tensor(given_gradient(kLastCell)) = state_of(args, in, dy.cell);
    run_net(net, blobs, key, run);
  }
  take(blobs, wanted.of(kX), dx.x);
  take(blobs, wanted.of(kHidden), dx.hidden);
  take(blobs, wanted.of(kCell), dx.cell);
  take_weights(args, in, blobs, wanted, dx.weights);
}

// Recurrent and RecurrentGradient: their registrations, and their kernels for the CPU, which run step nets.
//
// Y = layers of LSTM, GRU or RNN over X, with the weights in one vector. The gradient reads X, both states, the weights
// and the scratch; on a GPU also Y and, with dropout, its states. On the CPU it runs the layers forward once more, so
// that between the two passes nothing is kept but the key of the draws.
namespace {

using In = RecurrentIn;
using Out = RecurrentOut;
using GradIn = RecurrentGradientIn;
using GradOut = RecurrentGradientOut;

constexpr int64_t kMostLayers = 1000, kMostWide = 1 << 20;  // so that no size overflows

ArgCheck<int64_t> from_one_to(int64_t most) {
  return [most](const int64_t& v) { return v >= 1 && v <= most ? "" : fmt::format("must be from 1 to {}", most); };
}

void check_weights(const FlatArgs& args, const ShapeCall& call, int x, int weights) {
  if (!call.known(x)) return;
  const int64_t size = flat_size(flat_weights(args, call.shape(x)));
  if (!call.known(weights)) return;
  if (call.shape(weights).size() != size)
    fail("these layers have {} weights for X {}, but the weights are {}", size, call.shape(x), call.shape(weights));
}

void check_state(const FlatArgs& args, const ShapeCall& call, int x, int state, const char* what) {
  if (!call.known(x) || !call.known(state)) return;
  const Shape whole{args.parts(), call.shape(x)[1], args.hidden};
  const bool is_one = args.parts() == 1 && call.shape(state) == whole.from(1);
  if (!is_one && call.shape(state) != whole) fail("the {} must be {}, but is {}", what, whole, call.shape(state));
}

void check_all(const FlatArgs& args, const ShapeCall& call, int lengths) {
  check_weights(args, call, In::x, In::weights);
  check_state(args, call, In::x, In::hidden, "hidden state");
  check_state(args, call, In::x, In::cell, "cell state");
  if (call.known(In::x) && call.known(lengths) && call.shape(lengths) != Shape{call.shape(In::x)[1]})
    fail("the lengths must be [{}], one for each sample, but are {}", call.shape(In::x)[1], call.shape(lengths));
}

void shape(const FlatArgs& args, ShapeCall& call) {
  check_all(args, call, In::lengths);
  if (!call.known(In::x)) return;
  const Shape& x = call.shape(In::x);
  call.set(Out::y, call.dtype(In::x), {x[0], x[1], args.directions() * args.hidden});
  call.set(Out::hidden, call.dtype(In::x), {args.parts(), x[1], args.hidden});
  call.set(Out::cell, call.dtype(In::x), {args.parts(), x[1], args.hidden});
  call.set(Out::scratch, DType::uint8, {kKeyBytes});
  call.set(Out::dropout_states, DType::uint8, {0});
}

void gradient_shape(const FlatArgs& args, ShapeCall& call) {
  require(!args.is_test, "with is_test nothing is kept for a gradient");
  check_all(args, call, GradIn::lengths);
  for (int i = 0; i < 4; ++i) call.set_like(i, i);
  call.set_like(GradOut::scratch, GradIn::scratch);
  if (call.has(GradIn::dropout_states))
    call.set_like(GradOut::dropout_states, GradIn::dropout_states);
  else
    call.set(GradOut::dropout_states, DType::uint8, {0});
  if (!call.known(In::x)) return;
  const Shape& x = call.shape(In::x);
  const Shape y{x[0], x[1], args.directions() * args.hidden};
  for (const int i : {GradIn::y, GradIn::dy})
    if (call.known(i) && call.shape(i) != y)
      fail("{} must be {}, but is {}", i == GradIn::y ? "Y" : "dY", y, call.shape(i));
  check_state(args, call, In::x, GradIn::d_hidden, "gradient of the hidden output");
  check_state(args, call, In::x, GradIn::d_cell, "gradient of the cell output");
}

FlatInputs inputs_of(const Call& call, int lengths) {
  auto given = [&](int i) { return call.has(i) ? call.in(i) : Tensor(); };
  return {call.in(In::x), given(In::hidden), given(In::cell), call.in(In::weights), given(lengths)};
}

Tensor* wanted(const Call& call, int i) { return call.wants(i) ? &call.out(i) : nullptr; }

// What a GPU's library takes is known to it alone.
bool is_dry_gpu() { return DryScope::now() && DryScope::now()->claims() != DeviceKind::cpu; }

void dry_scratch(const FlatArgs& args, Call& call) {
  if (!is_dry_gpu() || !call.wants(Out::scratch)) return;
  const Tensor& x = call.in(In::x);
  Tensor& scratch = call.out(Out::scratch);
  const MemoryScope scope(MemoryCategory::reserve);
  scratch.resize(DType::uint8, {reserve_bytes(args, x.shape(), x.dtype())}, scratch.device());
}

void forward(const FlatArgs& args, Call& call) {
  if (is_dry_gpu()) return;
  const uint64_t key = flat_key(args, call.random_key);
  const FlatInputs in = inputs_of(call, In::lengths);
  run_flat(args, in, {wanted(call, Out::y), wanted(call, Out::hidden), wanted(call, Out::cell)}, key, call.run);
  if (Tensor* scratch = wanted(call, Out::scratch); scratch && !scratch->is_dry())
    std::memcpy(scratch->raw(), &key, sizeof(key));
}

uint64_t key_of(const FlatArgs& args, const Call& call) {
  uint64_t key = 0;
  if (args.drop() == 0 || call.in(In::x).is_dry()) return key;
  require(call.has(GradIn::scratch), "with dropout the gradient reads the scratch of Recurrent, which is missing");
  const Tensor& scratch = call.in(GradIn::scratch);
  require(scratch.dtype() == DType::uint8 && scratch.size() == kKeyBytes,
          "the scratch is {}, but Recurrent on the CPU makes uint8[{}]", scratch, kKeyBytes);
  std::memcpy(&key, scratch.raw(), sizeof(key));
  return key;
}

void backward(const FlatArgs& args, Call& call) {
  if (is_dry_gpu()) {  // unless it may overwrite the scratch, it works on a copy
    const bool copies = call.has(GradIn::scratch) && !call.wants(GradOut::scratch);
    const MemoryScope scope(MemoryCategory::reserve);
    const Tensor copy = copies ? call.in(GradIn::scratch).clone() : Tensor();
    return;
  }
  auto given = [&](int i) { return call.has(i) ? call.in(i) : Tensor(); };
  const FlatOutputGradients dy = {given(GradIn::dy), given(GradIn::d_hidden), given(GradIn::d_cell)};
  const FlatInputGradients dx = {wanted(call, GradOut::dx), wanted(call, GradOut::d_hidden),
                                 wanted(call, GradOut::d_cell), wanted(call, GradOut::d_weights)};
  run_flat_gradient(args, inputs_of(call, GradIn::lengths), dy, dx, key_of(args, call), call.run);
  if (!call.wants(GradOut::scratch) || !call.has(GradIn::scratch)) return;
  if (call.out(GradOut::scratch).raw() != call.in(GradIn::scratch).raw())
    call.out(GradOut::scratch).copy_from(call.in(GradIn::scratch));
}

std::vector<Gradient> gradient(Formula& f) {
  require(!f.args<FlatArgs>().is_test, "with is_test nothing is kept for a gradient");
  auto given = [&](const char* name) { return f.has_x(name) ? f.x(name) : Value{}; };
  auto arriving = [&](const char* name) { return f.has_dy(name) ? f.dy(name) : Value{}; };
  const Value scratch = f.y("RNN_SCRATCH");
  require(scratch.defined(), "the gradient reads output 3, the scratch, which this Recurrent does not have");
  std::vector<bool> wanted;
  for (const char* name : {"INPUT", "HIDDEN_INPUT", "CELL_INPUT", "WEIGHT"}) wanted.push_back(f.wants(name));
  const std::vector<Value> made =
      f.ops("RecurrentGradient",
            {f.x("INPUT"), given("HIDDEN_INPUT"), given("CELL_INPUT"), f.x("WEIGHT"), scratch, f.y("OUTPUT"),
             arriving("OUTPUT"), arriving("HIDDEN_OUTPUT"), arriving("CELL_OUTPUT"),
             f.args<FlatArgs>().drop() > 0 ? f.y("DROPOUT_STATES") : Value{}, given("LENGTHS")},
            f.forward_args(), wanted);
  std::vector<Gradient> gradients;
  for (size_t i = 0; i < wanted.size(); ++i) gradients.push_back(wanted[i] ? Gradient(made[i]) : Gradient::none());
  return gradients;
}

OpBuilder<FlatArgs>& declare_args(OpBuilder<FlatArgs>& b) {
  return declare_layers(b)
      .arg("dropout", &FlatArgs::dropout, 1.0F,
           "if less than 1, the probability of 0 between layers; 1 or more: nothing is dropped", float_at_least(0))
      .arg("seed", &FlatArgs::seed, int64_t{0}, "makes other draws of the dropout")
      .arg("is_test", &FlatArgs::is_test, false, "drop nothing, and keep nothing for a gradient");
}

}  // namespace

int64_t reserve_bytes(const FlatArgs& args, const Shape& x, DType dtype) {
  const int64_t row = x[0] * x[1] * args.hidden, directions = args.directions();
  if (args.is_test || row == 0) return 0;
  const int64_t per_part = args.cell() == CellKind::lstm ? 5 : args.cell() == CellKind::gru ? 6 : 1;
  const int64_t between = args.layers - 1, elements = row * (per_part * args.parts() + directions * between);
  const int64_t masks = args.drop() > 0 ? between * directions * ((row * directions + 7) / 8) : 0;
  constexpr int64_t kHeader = 256;
  return kHeader + elements * static_cast<int64_t>(dtype_size(dtype)) + masks;
}

OpBuilder<FlatArgs>& declare_layers(OpBuilder<FlatArgs>& b) {
  return b.required_arg("hidden_size", &FlatArgs::hidden, "H, the width of a state", from_one_to(kMostWide))
      .required_arg("num_layers", &FlatArgs::layers, "L, how many stand on each other", from_one_to(kMostLayers))
      .arg("bidirectional", &FlatArgs::bidirectional, false, "each layer also runs from the last timestep to the first")
      .required_arg("rnn_mode", &FlatArgs::mode,
                    "lstm, gru (whose reset gate is applied behind the product), rnn_tanh or rnn_relu",
                    one_of({"lstm", "gru", "rnn_tanh", "rnn_relu"}))
      .required_arg("input_mode", &FlatArgs::input_mode,
                    "linear; or skip: in place of matrices of the first layer's input there is the identity",
                    one_of({"linear", "skip"}));
}

namespace {

REGISTER(recurrent) {
  auto spec = op<FlatArgs>("Recurrent");
  return declare_args(spec)
      .doc(
          "Layers of LSTM, GRU or RNN with all weights in one vector, in the order of cuDNN "
          "(recurrent/layers/vendor_weights.h), "
          "which runs them on a GPU; on the CPU they run as step nets.")
      .input("INPUT", "the sequence X [T, B, I]")
      .input("HIDDEN_INPUT", "[L * D, B, H], or [B, H] if L * D is 1; \"\" for zeros")
      .optional()
      .input("CELL_INPUT", "like HIDDEN_INPUT; only lstm reads it")
      .optional()
      .input("WEIGHT", "all weights, in any shape")
      .input("LENGTHS", "timesteps of each sample, from 0 to T")
      .types({DType::int32})
      .optional()
      .output("OUTPUT", "[T, B, D * H], zeros behind the end of a sample")
      .optional()
      .output("HIDDEN_OUTPUT", "[L * D, B, H], the last states")
      .optional()
      .output("CELL_OUTPUT", "like HIDDEN_OUTPUT, zeros unless it is lstm")
      .optional()
      .output("RNN_SCRATCH", "bytes for the gradient: on a GPU cuDNN's reserve")
      .object()
      .optional()
      .output("DROPOUT_STATES", "bytes for the gradient: on a GPU the states of cuDNN's random numbers")
      .object()
      .optional()
      .shape(shape)
      .random()
      .precision(Precision::half)
      .cpu_for<float>(forward)
      .cpu_for<double>(forward)
      .workspace(forward)
      .known_outputs(dry_scratch)
      .derivatives({"INPUT", "HIDDEN_INPUT", "CELL_INPUT", "WEIGHT"}, gradient)
      .example({"INPUT=3,2,2", "HIDDEN_INPUT=4,2,1", "CELL_INPUT=4,2,1", "WEIGHT=80"},
               {"rnn_mode=lstm", "hidden_size=1", "num_layers=2", "bidirectional=1", "input_mode=linear"})
      .example({"INPUT=3,2,1", "HIDDEN_INPUT=2,2,2", "CELL_INPUT=2,2,2", "WEIGHT=66", "LENGTHS=int32,2:3,1"},
               {"rnn_mode=gru", "hidden_size=2", "num_layers=2", "input_mode=linear", "dropout=0.4"})
      .example({"INPUT=2,2,2", "WEIGHT=8"}, {"rnn_mode=rnn_tanh", "hidden_size=2", "num_layers=1", "input_mode=skip"})
      .example({"INPUT=2,1,1", "HIDDEN_INPUT=1,2", "WEIGHT=10"},
               {"rnn_mode=rnn_relu", "hidden_size=2", "num_layers=1", "input_mode=linear"});
}

REGISTER(recurrent_gradient) {
  auto spec = op<FlatArgs>("RecurrentGradient");
  return declare_args(spec)
      .doc(
          "Gradient of Recurrent. Without the inputs behind GRAD_OUTPUT, as in the public format, nothing arrives at "
          "the last states.")
      .input("INPUT", "of Recurrent")
      .input("HIDDEN_INPUT", "of Recurrent")
      .optional()
      .input("CELL_INPUT", "of Recurrent")
      .optional()
      .input("WEIGHT", "of Recurrent")
      .input("RNN_SCRATCH", "of Recurrent")
      .any_type()
      .optional()
      .input("OUTPUT", "of Recurrent")
      .optional()
      .input("GRAD_OUTPUT", "the gradient of OUTPUT; \"\" for zeros")
      .optional()
      .input("GRAD_HIDDEN_OUTPUT", "the gradient of HIDDEN_OUTPUT")
      .optional()
      .input("GRAD_CELL_OUTPUT", "the gradient of CELL_OUTPUT")
      .optional()
      .input("DROPOUT_STATES", "of Recurrent")
      .any_type()
      .optional()
      .input("LENGTHS", "of Recurrent")
      .types({DType::int32})
      .optional()
      .output("GRAD_INPUT", "the gradient of INPUT")
      .optional()
      .output("GRAD_HIDDEN_INPUT", "the gradient of HIDDEN_INPUT")
      .optional()
      .output("GRAD_CELL_INPUT", "the gradient of CELL_INPUT")
      .optional()
      .output("GRAD_WEIGHT", "the gradient of WEIGHT")
      .optional()
      .output("DROPOUT_STATES_OUT", "bytes that nobody needs")
      .object()
      .optional()
      .output("RNN_SCRATCH_OUT", "what cuDNN leaves of the scratch")
      .object()
      .optional()
      .in_place("RNN_SCRATCH", "RNN_SCRATCH_OUT")
      .in_place("DROPOUT_STATES", "DROPOUT_STATES_OUT")
      .shape(gradient_shape)
      .cpu_for<float>(backward)
      .cpu_for<double>(backward)
      .workspace(backward)
      .no_gradient("it has no second derivative");
}

}  // namespace

}  // namespace stepnet
