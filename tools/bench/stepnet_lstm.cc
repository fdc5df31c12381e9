// Stepnet as a contender: a file's layer, stacked, and for training with its gradient operators.
#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "core/error.h"
#include "core/io/text.h"
#include "core/net.h"
#include "core/passes/gradients.h"
#include "core/run_context.h"
#include "core/workspace.h"
#include "recurrent/builder.h"
#include "tools/bench/lstm_case.h"

namespace stepnet::bench {
namespace {

using Rename = std::function<std::string(const std::string&)>;

struct NetFile {
  std::string name, path;
};
const NetFile kNets[] = {{"lstm", STEPNET_SOURCE_DIR "/tools/examples/lstm.pbtxt"},
                         {"lstm_composed", STEPNET_SOURCE_DIR "/tools/bench/nets/lstm_composed.pbtxt.in"}};

// The file's text with numbers for ${1H} to ${4H}.
NetDef load_layer(const std::string& net, int64_t hidden) {
  for (const NetFile& file : kNets) {
    if (file.name != net) continue;
    std::ifstream in(file.path, std::ios::binary);
    require(in.good(), "cannot read {}", file.path);
    std::string text(std::istreambuf_iterator<char>(in), {});
    for (int k = 1; k <= 4; ++k) {
      const std::string mark = fmt::format("${{{}H}}", k);
      for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at))
        text.replace(at, mark.size(), std::to_string(k * hidden));
    }
    return parse_net_text(text, file.path);
  }
  fail("there is no net \"{}\"", net);
}

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

NetDef stacked(const std::string& name, const Size& size, Mode mode) {
  const NetDef layer = load_layer(name, size.hidden);
  NetDef net;
  net.set_name(name);
  for (int k = 0; k < size.layers; ++k) {
    NetDef renamed = layer;
    rename_blobs(renamed, [&](const std::string& blob) { return layer_name(blob, k); });
    for (OperatorDef& op : *renamed.mutable_op()) {
      if (mode == Mode::forward) op.MutableExtension(recurrent)->set_forward_only(true);
      *net.add_op() = op;
    }
    for (const std::string& input : renamed.external_input())
      if (k == 0 || input != layer_name("x", k)) net.add_external_input(input);
  }
  net.add_external_output(layer_name("h_all", size.layers - 1));
  expand_recurrent(net);
  return net;
}

class StepnetLstm : public Contender {
 public:
  StepnetLstm(const std::string& net, const LstmData& data, Mode mode) : Contender(net) {
    const Size& size = data.size;
    feed("x", {size.steps, size.batch, size.inputs}, data.x);
    for (int k = 0; k < size.layers; ++k) feed_layer(k, size, data.layers[static_cast<size_t>(k)]);
    NetDef def = stacked(net, size, mode);
    const std::string top = def.external_output(0);
    blobs_["h_all"] = top;
    if (mode == Mode::training) {
      feed("dy", {size.steps, size.batch, size.hidden}, data.dy);
      add_gradients(def, top);
    }
    net_ = std::make_unique<Net>(def, workspace_);
  }

  void run() override {
    RunContext context;
    net_->run(context);
  }

  Values results() const override {
    Values values;
    for (const auto& [result, blob] : blobs_) {
      const std::span<const float> elements = workspace_.fetch(blob).span<float>();
      values[result].assign(elements.begin(), elements.end());
    }
    return values;
  }

 private:
  void feed(const std::string& blob, const Shape& shape, const std::vector<float>& values) {
    workspace_.tensor(blob) = Tensor::of<float>(shape, values);
  }

  void feed_layer(int k, const Size& size, const LayerData& layer) {
    const int64_t gates = 4 * size.hidden;
    feed(layer_name("W_x", k), {gates, size.layer_inputs(k)}, layer.w_x);
    feed(layer_name("b_x", k), {gates}, layer.b_x);
    feed(layer_name("W_h", k), {gates, size.hidden}, layer.w_h);
    feed(layer_name("b_h", k), {gates}, layer.b_h);
    feed(layer_name("h0", k), {1, size.batch, size.hidden}, layer.h0);
    feed(layer_name("c0", k), {1, size.batch, size.hidden}, layer.c0);
  }

  // Of everything that is fed.
  void add_gradients(NetDef& def, const std::string& top) {
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

  Workspace workspace_;
  std::map<std::string, std::string> blobs_;  // result to blob
  std::unique_ptr<Net> net_;
};

}  // namespace

const std::vector<std::string>& net_names() {
  static const std::vector<std::string> names = {kNets[0].name, kNets[1].name};
  return names;
}

std::unique_ptr<Contender> make_stepnet(const std::string& net, const LstmData& data, Mode mode) {
  return std::make_unique<StepnetLstm>(net, data, mode);
}

}  // namespace stepnet::bench
