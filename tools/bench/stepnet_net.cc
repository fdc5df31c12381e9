// Reading, stacking and differentiating a file's layer.
#include "tools/bench/stepnet_net.h"

#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "core/estimate/estimate.h"
#include "core/gradcheck/examples.h"
#include "core/operator/nets_inside.h"
#include "recurrent/form/short_form.h"
#include "stepnet/error.h"
#include "stepnet/gradients.h"
#include "stepnet/run_context.h"
#include "stepnet/tensor.h"
#include "stepnet/text.h"
#include "tools/source_path.h"

namespace stepnet::bench {
namespace {

using Rename = std::function<std::string(const std::string&)>;

void rename_all(google::protobuf::RepeatedPtrField<std::string>& names, const Rename& rename) {
  for (std::string& name : names) name = rename(name);
}

void rename_blobs(NetDef& net, const Rename& rename) {
  rename_all(*net.mutable_external_input(), rename);
  rename_all(*net.mutable_external_output(), rename);
  for (OperatorDef& op : *net.mutable_op()) {
    rename_all(*op.mutable_input(), rename);
    rename_all(*op.mutable_output(), rename);
    if (!op.HasExtension(recurrent)) continue;
    RecurrentDef& loop = *op.MutableExtension(recurrent);
    rename_blobs(*loop.mutable_step_net(), rename);
    for (SequenceLink& link : *loop.mutable_sequence()) {
      link.set_outer(rename(link.outer()));
      link.set_inner(rename(link.inner()));
    }
    for (StateLink& state : *loop.mutable_state()) {
      state.set_input(rename(state.input()));
      state.set_output(rename(state.output()));
      state.set_initial(rename(state.initial()));
      if (state.has_all()) state.set_all(rename(state.all()));
      if (state.has_last()) state.set_last(rename(state.last()));
    }
  }
}

// Layer k's blobs end in _k; it reads "x" or the layer below.
std::string layer_name(const std::string& name, int layer) {
  if (name == "timestep") return name;
  if (name == "x") return layer == 0 ? name : fmt::format("h_all_{}", layer - 1);
  return fmt::format("{}_{}", name, layer);
}

// One layer after the other, all of the same file.
NetDef stacked(const NetDef& layer, int layers) {
  NetDef net;
  net.set_name(layer.name());
  for (int k = 0; k < layers; ++k) {
    NetDef renamed = layer;
    rename_blobs(renamed, [&](const std::string& blob) { return layer_name(blob, k); });
    for (const OperatorDef& op : renamed.op()) *net.add_op() = op;
    for (const std::string& input : renamed.external_input())
      if (k == 0 || input != layer_name("x", k)) net.add_external_input(input);
  }
  net.add_external_output(layer_name("h_all", layers - 1));
  return net;
}

NetDef whole_net(const NetFile& file, const Size& size, Mode mode) {
  NetDef net = load_net(file.path, size.hidden);
  if (!file.whole) net = stacked(net, size.layers);
  for (OperatorDef& op : *net.mutable_op()) {
    if (mode == Mode::forward) op.MutableExtension(recurrent)->set_forward_only(true);
    if (file.disabled_passes.empty()) continue;
    Argument& passes = *op.add_arg();
    passes.set_name("disabled_passes");
    for (const std::string& pass : file.disabled_passes) passes.add_strings(pass);
  }
  expand_recurrent(net);
  return net;
}

}  // namespace

DType dtype_of_name(const std::string& name) { return name == "float32" ? DType::float32 : dtype_from_name(name); }

NetDef load_net(const std::string& path, int64_t hidden) {
  const std::string whole = source_path(path);
  std::ifstream in(whole, std::ios::binary);
  require(in.good(), "cannot read {}", whole);
  std::string text(std::istreambuf_iterator<char>(in), {});
  for (int k = 1; k <= 9; ++k) {
    const std::string mark = fmt::format("${{{}H}}", k);
    for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at))
      text.replace(at, mark.size(), std::to_string(k * hidden));
  }
  return parse_net_text(text, whole);
}

StepnetNet::StepnetNet(const NetFile& file, const CellData& data, Mode mode, Device device, DType dtype)
    : Contender(file.name), device_(device), dtype_(dtype) {
  const Size& size = data.size;
  feed("x", {size.steps, size.batch, size.inputs}, data.x);
  for (int k = 0; k < size.layers; ++k)
    for (const auto& [name, array] : data.layers[static_cast<size_t>(k)])
      feed(layer_name(name, k), array.shape, array.values);
  NetDef def = whole_net(file, size, mode);
  const std::string top = def.external_output(0);
  blobs_["h_all"] = top;
  if (mode == Mode::training) {
    feed("dy", {size.steps, size.batch, size.hidden}, data.dy);
    add_gradients(def, top);
  }
  if (device.kind == DeviceKind::cuda)
    for_each_net(def, [](NetDef& net) { net.mutable_device_option()->set_device_type(CUDA); });
  net_ = std::make_unique<Net>(def, workspace_);
}

void StepnetNet::run() {
  RunContext context;
  net_->run(context);
}

NetWork StepnetNet::work() const {
  DryScope scope(device_.kind);
  NetSession session;
  const NetDef& def = net_->def();
  for (const std::string& name : def.external_input()) {
    const Tensor& fed = workspace_.fetch(name);
    session.blobs.tensor(name) = Tensor::empty(fed.dtype(), fed.shape(), fed.device());
  }
  session.net = std::make_unique<Net>(def, session.blobs);
  session.differentiated.first_gradient_op = session.first_update = def.op_size();
  const Estimate estimate = estimate_session(session, scope);
  return {estimate.flops, estimate.bytes_moved};
}

Values StepnetNet::results() const {
  Values values;
  for (const auto& [result, blob] : blobs_) {
    const Tensor tensor = in_type(DType::float32, on_device(workspace_.fetch(blob), Device{}));
    const std::span<const float> elements = tensor.span<float>();
    values[result].assign(elements.begin(), elements.end());
  }
  return values;
}

void StepnetNet::keep_state(const std::string& initial, const std::string& last) {
  workspace_.tensor(layer_name(initial, 0)).copy_from(workspace_.fetch(layer_name(last, 0)));
}

void StepnetNet::feed(const std::string& blob, const std::vector<int64_t>& shape, const std::vector<float>& values) {
  workspace_.tensor(blob) = on_device(in_type(dtype_, Tensor::of<float>(Shape(shape), values)), device_);
}

// Of everything that is fed.
void StepnetNet::add_gradients(NetDef& def, const std::string& top) {
  GradientRequest request;
  request.targets = {{top, "dy"}};
  request.wanted.insert(def.external_input().begin(), def.external_input().end());
  def.add_external_input("dy");
  const GradientResult result = add_gradient_operators(def, request);
  for (const std::string& blob : request.wanted) {
    blobs_["d" + blob] = result.gradients.at(blob).dense;
    def.add_external_output(blobs_["d" + blob]);
  }
}

std::unique_ptr<Contender> make_stepnet(const NetFile& net, const CellData& data, Mode mode) {
  return std::make_unique<StepnetNet>(net, data, mode);
}

}  // namespace stepnet::bench
