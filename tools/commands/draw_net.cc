#include "tools/commands/draw_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <set>

#include "core/net/dataflow.h"
#include "core/operator/dry_run.h"
#include "recurrent/network/kept.h"
#include "stepnet/bound_op.h"

namespace stepnet::tools {
namespace {

// The length of the UTF-8 character that the text starts with; 0 if there is none, or if it is a control character.
size_t printable_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7F ? 1 : 0;
  const size_t length = byte(0) >= 0xF0 && byte(0) < 0xF5   ? 4
                        : byte(0) >= 0xE0 && byte(0) < 0xF0 ? 3
                        : byte(0) >= 0xC2 && byte(0) < 0xE0 ? 2
                                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  uint32_t code = byte(0) & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool is_overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF) && code >= 0xA0;
  return is_character && !is_overlong ? length : 0;
}

}  // namespace

std::string dot_quoted(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t length = printable_length(text);
    const char c = text[0];
    if (c == '\n')
      quoted += "\\n";
    else if (c == '"')
      quoted += "\\\"";
    else if (c == '\\')
      quoted += "\\\\";
    else if (c == '&')  // would start the name of a character
      quoted += "&amp;";
    else if (length == 0)
      quoted += fmt::format("\\\\x{:02x}", static_cast<uint8_t>(c));
    else
      quoted += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return quoted + '"';
}

DotGraph::DotGraph(std::string_view title) {
  nodes_ = fmt::format("digraph {} {{\n  label={};\n  node [fontsize=10];\n  edge [fontsize=9];\n", dot_quoted(title),
                       dot_quoted(title));
}

void DotGraph::open_cluster(std::string_view label) {
  nodes_ += fmt::format("{}subgraph cluster_{} {{\n", indent(), clusters_++);
  ++depth_;
  nodes_ += fmt::format("{}label={};\n", indent(), dot_quoted(label));
}

void DotGraph::close_cluster() {
  assert(depth_ > 0);
  --depth_;
  nodes_ += indent() + "}\n";
}

void DotGraph::node(const std::string& id, std::string_view label, const std::string& attributes) {
  nodes_ += fmt::format("{}{} [label={}, {}];\n", indent(), id, dot_quoted(label), attributes);
}

void DotGraph::edge(const std::string& from, const std::string& to) {
  edges_ += fmt::format("  {} -> {};\n", from, to);
}

void DotGraph::dashed_edge(const std::string& from, const std::string& to, std::string_view label) {
  edges_ += fmt::format("  {} -> {} [style=dashed, label={}];\n", from, to, dot_quoted(label));
}

std::string DotGraph::text() const {
  assert(depth_ == 0);
  return nodes_ + edges_ + "}\n";
}

namespace {

constexpr const char* kOperator = "shape=box, style=filled, fillcolor=\"#dde8f5\"";
constexpr const char* kBlob = "shape=ellipse";
constexpr const char* kOutput = "shape=ellipse, peripheries=2";
constexpr const char* kState = "shape=ellipse, style=filled, fillcolor=\"#eeeeee\"";

// The blobs that a net sees: the node that shows each, and its type.
struct Scope {
  std::map<std::string, std::string> nodes;
  std::map<std::string, TensorType> types;
  bool is_inside = false;  // of an operator, where what is not known stays so

  TensorType type(const std::string& name) const {
    const auto it = types.find(name);
    return it == types.end() ? TensorType() : it->second;
  }
};

// An operator with the types around it.
struct DrawnOp {
  BoundOp op;
  std::vector<TensorType> in, out;
  std::string node;
};

std::string blob_label(const std::string& name, const TensorType& type) {
  if (!type.known) return name;
  return fmt::format("{}\n{}\n{} bytes", name, type.str(), byte_size(type.dtype, type.shape));
}

// -1 if it is not known.
double flops_of(const DrawnOp& d) {
  const auto is_known = [](const TensorType& t) { return t.known || t.absent; };
  if (d.op.spec->blob_kernel || !std::ranges::all_of(d.in, is_known) || !std::ranges::all_of(d.out, is_known))
    return -1;
  return op_flops(d.op, d.in, d.out);
}

// Rows of a tensor over time, as a step sees them.
TensorType rows_of(const TensorType& whole, int64_t window) {
  if (!whole.known || whole.shape.rank() < 1) return {};
  return TensorType::of(whole.dtype, whole.shape.with(0, window));
}

class NetDrawing {
 public:
  NetDrawing(const NetDef& net, std::map<std::string, TensorType> known) : net_(net), graph_(net.name()) {
    outer_.types = std::move(known);
  }

  std::string draw() {
    for (const OperatorDef& op : net_.op()) has_gradient_ = has_gradient_ || op.type() == kRecurrentNetworkGradient;
    draw_operators(net_, outer_);
    return graph_.text();
  }

 private:
  std::string new_node(const std::string& label, const char* attributes) {
    const std::string id = fmt::format("n{}", next_++);
    graph_.node(id, label, attributes);
    return id;
  }

  // The node of what the blob holds; made if nobody has written it.
  const std::string& node_of(Scope& scope, const std::string& name, const char* attributes = kBlob) {
    std::string& id = scope.nodes[name];
    if (id.empty()) id = new_node(blob_label(name, scope.type(name)), attributes);
    return id;
  }

  // The FLOPs of all; -1 if those of one are not known.
  double draw_operators(const NetDef& net, Scope& scope) {
    double total = 0;
    for (int i = 0; i < net.op_size(); ++i) {
      const double flops = draw_operator(net, i, scope);
      total = flops < 0 || total < 0 ? -1 : total + flops;
    }
    return total;
  }

  double draw_operator(const NetDef& net, int index, Scope& scope) {
    DrawnOp d{bind_op(net.op(index), net.name(), index), {}, {}, fmt::format("n{}", next_++)};
    const OperatorDef& def = d.op.def;
    infer(d, scope);
    for (const std::string& name : def.input())
      if (!name.empty()) graph_.edge(node_of(scope, name), d.node);
    Scope before;  // in which an operator in place finds its input
    if (d.op.spec->blob_kernel || !d.op.spec->aliases.empty()) before = scope;
    const std::set<std::string> outputs(net.external_output().begin(), net.external_output().end());
    for (int o = 0; o < def.output_size(); ++o) {
      const std::string& name = def.output(o);
      if (name.empty()) continue;
      scope.types[name] = d.out[o];
      scope.nodes[name] = new_node(blob_label(name, d.out[o]), outputs.count(name) > 0 ? kOutput : kBlob);
      graph_.edge(d.node, scope.nodes[name]);
    }
    draw_aliases(d, before, scope);
    const double inside = draw_inside(d, before, scope);
    const double flops = inside >= 0 ? inside : flops_of(d);
    std::string label = def.type();
    if (!def.name().empty()) label += fmt::format(" \"{}\"", def.name());
    if (flops >= 0) label += fmt::format("\n{:.0f} FLOPs", flops);
    graph_.node(d.node, label, kOperator);
    return flops;
  }

  void infer(DrawnOp& d, const Scope& scope) const {
    std::vector<std::string> shapes;
    for (const std::string& name : d.op.def.input()) {
      d.in.push_back(scope.type(name));
      d.in.back().absent = name.empty();
      if (d.in.back().known) shapes.push_back(fmt::format("{} is {}", name, d.in.back().str()));
    }
    d.out.resize(d.op.def.output_size());
    for (size_t o = 0; o < d.out.size(); ++o) d.out[o].absent = d.op.def.output(static_cast<int>(o)).empty();
    try {
      infer_types(d.op, d.in, d.out);
    } catch (Error& e) {
      if (scope.is_inside) return;  // types there are what is drawn from outside
      add_op_context(e, d.op, shapes);
      throw;
    }
    if (d.op.def.type() == kRecurrentNetworkGradient) infer_gradients(d);
  }

  // They have the types of what they are gradients of.
  static void infer_gradients(DrawnOp& d) {
    const RecurrentSpec spec = spec_of(d);
    std::vector<int> of = {0};
    for (const ParamSpecGrad& p : spec.params) of.push_back(p.input);
    for (const StateSpec& s : spec.states) of.push_back(s.initial);
    of.insert(of.end(), spec.more_sequences.begin(), spec.more_sequences.end());
    const size_t first = spec.outputs_with_grads.size();
    for (size_t o = 0; o < std::min(of.size(), d.out.size()); ++o)
      if (of[o] >= 0 && first + of[o] < d.in.size() && !d.out[o].absent) d.out[o] = d.in[first + of[o]];
  }

  void draw_aliases(const DrawnOp& d, const Scope& before, const Scope& after) {
    for (const AliasRule& rule : d.op.spec->aliases) {
      const int i = d.op.spec->input_index(rule.in), o = d.op.spec->output_index(rule.out);
      if (i >= d.op.def.input_size() || o >= d.op.def.output_size() || d.op.def.output(o).empty()) continue;
      graph_.dashed_edge(before.nodes.at(d.op.def.input(i)), after.nodes.at(d.op.def.output(o)), "same bytes");
    }
  }

  // Nets inside the operator. Their FLOPs; -1 if there are none or they are not known.
  double draw_inside(DrawnOp& d, const Scope& before, Scope& scope) {
    if (d.op.def.type() == kRecurrentNetwork) return draw_recurrent(d, before, scope);
    if (d.op.def.type() == kRecurrentNetworkGradient) return draw_gradient(d, before, scope);
    for (const Argument& arg : d.op.def.arg()) {
      if (!arg.has_n()) continue;
      graph_.open_cluster(fmt::format("{} of {}", arg.name(), d.op.def.type()));
      Scope inner = before;
      inner.is_inside = true;
      draw_operators(arg.n(), inner);
      graph_.close_cluster();
    }
    return -1;
  }

  static RecurrentSpec spec_of(const DrawnOp& d) {
    return parse_recurrent(*static_cast<const RecurrentArgs*>(d.op.args.get()), d.op.def, d.op.def.input_size());
  }

  static std::string cluster_label(const char* what, const NetDef& net, const TensorType& sequence) {
    const std::string steps = sequence.known ? fmt::format(", {} timesteps", sequence.shape[0]) : "";
    return fmt::format("{} \"{}\"{}", what, net.name(), steps);
  }

  double draw_recurrent(const DrawnOp& d, const Scope& before, Scope& scope) {
    const RecurrentSpec spec = spec_of(d);
    const OperatorDef& def = d.op.def;
    const TensorType& sequence = d.in[0];
    const bool has_steps = sequence.known && sequence.shape.rank() >= 2;
    for (const StateSpec& state : spec.states) {
      const TensorType initial = state.initial >= 0 ? d.in[state.initial] : TensorType();
      if (initial.known && has_steps)
        scope.types[state.name] =
            TensorType::of(initial.dtype, state_shape(initial.shape, sequence.shape[0], sequence.shape[1]));
      const std::string& node = node_of(scope, state.name, kState);
      if (state.initial >= 0) graph_.dashed_edge(before.nodes.at(def.input(state.initial)), node, "first rows");
    }
    for (const StateView& view : spec.views)
      if (scope.nodes.count(view.output) > 0)
        graph_.dashed_edge(scope.nodes.at(view.state), scope.nodes.at(view.output),
                           fmt::format("rows from {}", view.offset));
    make_outside(spec.links, scope);
    Scope inner = inner_scope(scope);
    if (!spec.timestep.empty()) inner.types[spec.timestep] = TensorType::of(DType::int32, {1});
    graph_.open_cluster(cluster_label("step net", spec.step_net, sequence));
    const double flops = draw_linked(spec.step_net, spec.links, scope, inner);
    graph_.close_cluster();
    for (const StepOutput& output : spec.outputs)
      if (inner.nodes.count(output.internal) > 0 && scope.nodes.count(output.external) > 0)
        graph_.dashed_edge(inner.nodes.at(output.internal), scope.nodes.at(output.external), "row t");
    steps_[def.output(def.output_size() - 1)] = inner;
    if (spec.has_backward && !has_gradient_) draw_backward(spec, sequence, scope, inner);
    return has_steps && flops >= 0 ? flops * static_cast<double>(sequence.shape[0]) : -1;
  }

  // What the backward step net reads of the forward one is in its cluster.
  double draw_gradient(const DrawnOp& d, const Scope& before, Scope& scope) {
    const RecurrentSpec spec = spec_of(d);
    const OperatorDef& def = d.op.def;
    const auto first = static_cast<int>(spec.outputs_with_grads.size());
    const auto steps = steps_.find(def.input(def.input_size() - 1));
    if (first >= def.input_size()) return -1;
    Scope inner = steps != steps_.end() ? steps->second : inner_scope(before);
    const double flops = draw_backward(spec, d.in[first], scope, inner);
    for (size_t i = 0; i < spec.params.size() && i + 1 < static_cast<size_t>(def.output_size()); ++i) {
      const std::string& total = def.output(static_cast<int>(i) + 1);
      if (!total.empty() && inner.nodes.count(spec.params[i].grad) > 0)
        graph_.dashed_edge(inner.nodes.at(spec.params[i].grad), scope.nodes.at(total), "sum over t");
    }
    return d.in[first].known && flops >= 0 ? flops * static_cast<double>(d.in[first].shape[0]) : -1;
  }

  double draw_backward(const RecurrentSpec& spec, const TensorType& sequence, Scope& scope, Scope& inner) {
    const std::string suffix = "_grad";
    for (const Link& link : spec.backward_links) {
      const std::string& name = link.external;
      if (name.ends_with(suffix) && !scope.type(name).known)
        scope.types[name] = scope.type(name.substr(0, name.size() - suffix.size()));
    }
    std::vector<Link> links = spec.backward_links;
    for (const Link& link : spec.links)
      if (inner.nodes.count(link.internal) == 0) links.push_back(link);
    make_outside(links, scope);
    graph_.open_cluster(cluster_label("backward step net", spec.backward_net, sequence));
    const double flops = draw_linked(spec.backward_net, links, scope, inner);
    graph_.close_cluster();
    return flops;
  }

  // Blobs outside that the step net may read by name.
  static Scope inner_scope(const Scope& scope) {
    Scope inner = scope;
    inner.is_inside = true;
    return inner;
  }

  // A linked blob that the step net writes is an edge to the tensor outside, any other one from it.
  double draw_linked(const NetDef& net, const std::vector<Link>& links, Scope& outer, Scope& inner) {
    const std::set<std::string> written = written_names(net);
    const auto text = [](const Link& l) {
      const std::string offset = l.offset == 0 ? "" : fmt::format(" + {}", l.offset);
      return fmt::format("row t{}{}", offset, l.window == 1 ? "" : fmt::format(", {} rows", l.window));
    };
    for (const Link& link : links) {
      inner.types[link.internal] = rows_of(outer.type(link.external), link.window);
      inner.nodes.erase(link.internal);
      if (written.count(link.internal) > 0) continue;
      const std::string& node = node_of(inner, link.internal);
      graph_.dashed_edge(outer.nodes.at(link.external), node, text(link));
    }
    const double flops = draw_operators(net, inner);
    for (const Link& link : links)
      if (written.count(link.internal) > 0)
        graph_.dashed_edge(node_of(inner, link.internal), outer.nodes.at(link.external), text(link));
    return flops;
  }

  // Before the cluster is opened.
  void make_outside(const std::vector<Link>& links, Scope& outer) {
    for (const Link& link : links) node_of(outer, link.external, kState);
  }

  const NetDef& net_;
  DotGraph graph_;
  Scope outer_;
  std::map<std::string, Scope> steps_;  // by scratch: the blobs of the step net
  bool has_gradient_ = false;
  int next_ = 0;
};

}  // namespace

std::string draw_net(const NetDef& net, std::map<std::string, TensorType> known) {
  return NetDrawing(net, std::move(known)).draw();
}

}  // namespace stepnet::tools
