#include "recurrent/layers/flat_run.h"

#include <algorithm>
#include <optional>

#include "core/net/net.h"
#include "core/passes/gradients.h"
#include "recurrent/form/builder.h"
#include "recurrent/form/cell_operators.h"

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

}  // namespace stepnet
