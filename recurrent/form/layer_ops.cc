#include "recurrent/form/layer_ops.h"

#include <algorithm>

#include "core/operator/arg_names.h"
#include "recurrent/form/example_nets.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"
#include "stepnet/operator.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {
namespace {

struct CellArgs {
  int64_t hidden = 0;
  int64_t layers = 1;
  bool bidirectional = false;
  float dropout = 0;
  bool is_test = false;
  std::string nonlinearity;
  bool linear_before_reset = true;
  float forget_bias = 0;
};

using Strings = std::vector<std::string>;
constexpr int kWeights = 4;  // of one layer in one direction

OperatorDef operator_of(const std::string& type, const Strings& inputs, const Strings& outputs,
                        const std::vector<Argument>& args = {}) {
  OperatorDef op;
  op.set_type(type);
  for (const std::string& name : inputs) op.add_input(name);
  for (const std::string& name : outputs) op.add_output(name);
  for (const Argument& arg : args) *op.add_arg() = arg;
  return op;
}

Argument last_axis() { return make_arg("axis", 2); }

// One layer in one direction, whose own blobs have names that begin with `name`.
struct Direction {
  std::string name;
  int part = 0;  // layer * directions + direction
  bool reverse = false;
  std::string sequence;
  std::string all;  // the states of all timesteps; "" if nobody reads them

  std::string in(const std::string& blob) const { return name + "/" + blob; }
};

// The operators that one RNN, GRU or LSTM becomes, while they are written.
class Writer {
 public:
  Writer(const OperatorDef& op, const CellArgs& args) : op_(op), args_(args), cell_(op.type()), scope_(op.name()) {
    for (const std::string& name : op.output())
      if (scope_.empty() && !name.empty()) scope_ = fmt::format("{}_{}", name, cell_);
    require(!scope_.empty(), "it has neither a name nor an output");
    const int least = first_weight() + kWeights * parts();
    require(op_.input_size() == least || has_lengths(),
            "layers: {}, directions: {} take {} inputs (X, {}, and w_ih, w_hh, b_ih, b_hh for each), and lengths if "
            "they are given, but it has {}",
            args_.layers, directions(), least, states() == 2 ? "h0, c0" : "h0", op_.input_size());
  }

  std::vector<OperatorDef> write() {
    cut_initial_states();
    std::string sequence = op_.input(0);
    for (int layer = 0; layer < args_.layers; ++layer) {
      sequence = write_layer(layer, sequence);
      if (layer + 1 < args_.layers && args_.dropout > 0) sequence = add_dropout(layer, sequence);
    }
    for (int s = 0; s < states(); ++s) join_last(s);
    return std::move(ops_);
  }

 private:
  int states() const { return cell_ == "LSTM" ? 2 : 1; }
  int directions() const { return args_.bidirectional ? 2 : 1; }
  int parts() const { return static_cast<int>(args_.layers) * directions(); }
  int first_weight() const { return 1 + states(); }
  bool has_lengths() const { return op_.input_size() == first_weight() + kWeights * parts() + 1; }
  std::string lengths() const { return has_lengths() ? op_.input(op_.input_size() - 1) : ""; }
  std::string output(int i) const { return i < op_.output_size() ? op_.output(i) : ""; }
  std::string weight(const Direction& d, int i) const { return op_.input(first_weight() + kWeights * d.part + i); }
  std::string initial(int state, int part) const {
    const std::string& given = op_.input(1 + state);
    return parts() == 1 || given.empty() ? given : fmt::format("{}/initial_{}_{}", scope_, state, part);
  }
  std::string last(int state, int part) const {
    const std::string wanted = output(1 + state);
    return parts() == 1 || wanted.empty() ? wanted : fmt::format("{}/last_{}_{}", scope_, state, part);
  }

  OperatorDef& add(OperatorDef op) {
    if (op_.HasExtension(source)) *op.MutableExtension(source) = op_.GetExtension(source);
    if (op_.has_device_option()) *op.mutable_device_option() = op_.device_option();
    return ops_.emplace_back(std::move(op));
  }

  void cut_initial_states() {
    for (int s = 0; s < states(); ++s) {
      if (parts() == 1 || op_.input(1 + s).empty()) continue;
      Strings names;
      for (int p = 0; p < parts(); ++p) names.push_back(initial(s, p));
      add(operator_of("Split", {op_.input(1 + s)}, names, {make_arg("axis", 0)}));
    }
  }

  // Returns the name of what the next layer reads.
  std::string write_layer(int layer, const std::string& sequence) {
    const bool top = layer + 1 == args_.layers;
    const std::string name = fmt::format("{}/layer_{}", scope_, layer);
    const std::string result = top ? output(0) : name + "/all";
    const bool wanted = !result.empty();
    Strings halves;
    for (int d = 0; d < directions(); ++d) {
      Direction direction{name + (d == 0 ? "" : "_reverse"), layer * directions() + d, d == 1, sequence, ""};
      if (wanted) direction.all = directions() == 1 ? result : direction.in(d == 0 ? "forward" : "backward");
      halves.push_back(direction.all);
      write_direction(direction);
    }
    if (wanted && directions() == 2) add(operator_of("Concat", halves, {result}, {last_axis()}));
    return result;
  }

  void write_direction(const Direction& d) {
    OperatorDef op = operator_of("RecurrentNetwork", {d.sequence}, {});
    op.set_name(d.name);
    RecurrentDef& def = *op.MutableExtension(recurrent);
    def.set_timestep(d.in("timestep"));
    if (d.reverse) def.set_reverse(true);
    def.add_sequence()->set_outer(d.sequence);
    def.mutable_sequence(0)->set_inner(d.in("x"));
    if (!d.all.empty()) op.add_output(d.all);
    for (int s = 0; s < states(); ++s) add_state(d, s, op, def);
    if (has_lengths()) {
      def.set_lengths(lengths());
      op.add_input(lengths());
    }
    if (op.output_size() == 0) return;  // nobody reads it
    add_sizes(d, op);
    if (!d.all.empty() && has_lengths()) {  // an output that is no state is zero behind the end of a sample
      def.add_output()->set_inner(d.in("h"));
      def.mutable_output(0)->set_outer(d.all);
    }
    write_step(d, *def.mutable_step_net());
    add(std::move(op));
  }

  void add_state(const Direction& d, int s, OperatorDef& op, RecurrentDef& def) const {
    StateLink& state = *def.add_state();
    state.set_input(d.in(s == 0 ? "h_prev" : "c_prev"));
    state.set_output(d.in(s == 0 ? "h" : "c"));
    if (const std::string first = initial(s, d.part); first.empty()) {
      state.add_size(args_.hidden);
    } else {
      state.set_initial(first);
      if (std::ranges::count(op.input(), first) == 0) op.add_input(first);
    }
    if (s == 0 && !d.all.empty() && !has_lengths()) state.set_all(d.all);
    if (const std::string name = last(s, d.part); !name.empty()) {
      state.set_last(name);
      op.add_output(name);
    }
  }

  // What the network checks its inputs by, so that a mistake is told in the words of this operator. The weights become
  // inputs in the order in which the step net reads them.
  void add_sizes(const Direction& d, OperatorDef& op) const {
    const bool cut = cell_ == "GRU" && !args_.linear_before_reset;  // w_hh and b_hh, which the step net does not read
    const auto id = [&](int i) {
      if (cut && i % 2 == 1) return int64_t{-1};
      return static_cast<int64_t>(std::ranges::find(op.input(), weight(d, i)) - op.input().begin());
    };
    for (const int i : {0, 2, 1, 3})
      if (id(i) == op.input_size()) op.add_input(weight(d, i));
    *op.add_arg() = make_arg("layer_hidden", args_.hidden);
    *op.add_arg() = make_arg("layer_gates", int64_t{cell_ == "LSTM" ? 4 : cell_ == "GRU" ? 3 : 1});
    *op.add_arg() = make_arg("layer_weights", std::vector<int64_t>{id(0), id(1), id(2), id(3)});
  }

  void write_step(const Direction& d, NetDef& step) {
    step.set_name(d.in("step"));
    auto put = [&](const std::string& type, const Strings& inputs, const Strings& outputs,
                   const std::vector<Argument>& args = {}) {
      OperatorDef op = operator_of(type, {}, {}, args);
      for (const std::string& name : inputs) op.add_input(d.in(name));
      for (const std::string& name : outputs) op.add_output(d.in(name));
      *step.add_op() = std::move(op);
    };
    *step.add_op() = operator_of("FC", {d.in("x"), weight(d, 0), weight(d, 2)}, {d.in("sums_x")}, {last_axis()});
    if (cell_ == "GRU") return write_gru(d, step, put);
    *step.add_op() = operator_of("FC", {d.in("h_prev"), weight(d, 1), weight(d, 3)}, {d.in("sums_h")}, {last_axis()});
    put("Sum", {"sums_x", "sums_h"}, {"sums"});
    if (cell_ == "RNN") return put(args_.nonlinearity == "relu" ? "Relu" : "Tanh", {"sums"}, {"h"});
    put("LSTMUnit", {"h_prev", "c_prev", "sums", "timestep"}, {"h", "c"},
        {make_arg("sequence_lengths", 0), make_arg("forget_bias", args_.forget_bias)});
  }

  template <class Put>
  void write_gru(const Direction& d, NetDef& step, const Put& put) {
    put("Split", {"sums_x"}, {"x_r", "x_u", "x_n"}, {last_axis()});
    const Strings weights = args_.linear_before_reset ? Strings{weight(d, 1), weight(d, 3)} : cut_candidate(d);
    auto product = [&](const char* of, const std::string& w, const std::string& b, const char* to) {
      *step.add_op() = operator_of("FC", {d.in(of), w, b}, {d.in(to)}, {last_axis()});
    };
    product("h_prev", weights[0], weights[1], "sums_h");
    const Strings halves = args_.linear_before_reset ? Strings{"h_r", "h_u", "h_n"} : Strings{"h_r", "h_u"};
    put("Split", {"sums_h"}, halves, {last_axis()});
    put("Sum", {"x_r", "h_r"}, {"sum_r"});
    put("Sigmoid", {"sum_r"}, {"r"});
    if (args_.linear_before_reset) {
      put("Mul", {"r", "h_n"}, {"past"});
    } else {
      put("Mul", {"r", "h_prev"}, {"kept"});
      product("kept", weights[2], weights[3], "past");
    }
    put("Sum", {"x_u", "h_u"}, {"sum_u"});
    put("Sum", {"x_n", "past"}, {"sum_n"});
    put("Concat", {"sum_r", "sum_u", "sum_n"}, {"sums"}, {last_axis()});
    put("GRUUnit", {"h_prev", "sums", "timestep"}, {"h"}, {make_arg("sequence_lengths", 0)});
  }

  // w_hh and b_hh cut into those of the two gates and those of the candidate.
  Strings cut_candidate(const Direction& d) {
    const Strings names = {d.in("w_gates"), d.in("b_gates"), d.in("w_candidate"), d.in("b_candidate")};
    const std::vector<Argument> args = {make_arg("axis", 0),
                                        make_arg("split", std::vector<int64_t>{2 * args_.hidden, args_.hidden})};
    add(operator_of("Split", {weight(d, 1)}, {names[0], names[2]}, args));
    add(operator_of("Split", {weight(d, 3)}, {names[1], names[3]}, args));
    return names;
  }

  std::string add_dropout(int layer, const std::string& sequence) {
    const std::string name = fmt::format("{}/layer_{}", scope_, layer);
    add(operator_of("Dropout", {sequence}, {name + "/kept", name + "/mask"},
                    {make_arg("ratio", args_.dropout), make_arg("is_test", args_.is_test)}));
    return name + "/kept";
  }

  void join_last(int state) {
    if (parts() == 1 || output(1 + state).empty()) return;
    Strings names;
    for (int p = 0; p < parts(); ++p) names.push_back(last(state, p));
    add(operator_of("Concat", names, {output(1 + state)}, {make_arg("axis", 0)}));
  }

  const OperatorDef& op_;
  const CellArgs& args_;
  const std::string cell_;
  std::string scope_;
  std::vector<OperatorDef> ops_;
};

// Throws Error if the number of inputs does not fit.
std::vector<OperatorDef> expand_layers(const OperatorDef& op, const CellArgs& args) { return Writer(op, args).write(); }

// What is left of such an operator if nobody expanded the net.
void refuse(const CellArgs&, BlobCall& call) {
  throw Error(fmt::format("{} stands for several operators and does not run itself", call.def.type()),
              "expand the net first, with expand_recurrent or `stepnet expand`");
}

ArgCheck<float> probability_below_one() {
  return [](const float& v) { return v >= 0 && v < 1 ? "" : "must be from 0 to less than 1"; };
}

// At most as many layers as anyone could name the weights of.
ArgCheck<int64_t> number_of_layers() {
  return [](const int64_t& v) { return v >= 1 && v <= 1000 ? "" : "must be from 1 to 1000"; };
}

OpBuilder<CellArgs> cell_operator(const char* type) {
  using A = CellArgs;
  auto builder = op<A>(type);
  builder.own()
      .required_arg("hidden", &A::hidden, "H, the width of a state", at_least(1))
      .arg("layers", &A::layers, int64_t{1}, "how many stand on each other", number_of_layers())
      .arg("bidirectional", &A::bidirectional, false, "each layer also runs from the last timestep to the first")
      .arg("dropout", &A::dropout, 0.0F, "the probability of 0 between layers", probability_below_one())
      .arg("is_test", &A::is_test, false, "drop nothing");
  return builder;
}

Registration finish(OpBuilder<CellArgs>& builder, bool has_cell) {
  builder.input("X", "[T, B, I]").object();
  builder.input("h0", "[layers * directions, B, H]; \"\" for zeros").object().optional();
  if (has_cell) builder.input("c0", "like h0").object().optional();
  builder
      .input("weights",
             "by layer, and in it by direction, w_ih [G * H, ...], w_hh [G * H, H], b_ih and b_hh [G * H]; behind them "
             "the lengths of the samples, int32 [B], if they have any")
      .object()
      .variadic(4);
  builder.output("Y", "[T, B, directions * H], zeros behind the end of a sample").object().optional();
  builder.output("h_n", "[layers * directions, B, H], the last states").object().optional();
  if (has_cell) builder.output("c_n", "like h_n").object().optional();
  return builder.precision(Precision::half)
      .blobs(refuse)
      .no_gradient("it must be expanded first, with expand_recurrent or `stepnet expand`");
}

REGISTER(rnn) {
  auto builder = cell_operator("RNN");
  builder.doc("Layers of simple recurrent networks: h = tanh(w_ih x + b_ih + w_hh h_prev + b_hh).")
      .arg("nonlinearity", &CellArgs::nonlinearity, std::string("tanh"), "tanh or relu", one_of({"tanh", "relu"}))
      .example_net(kRnnExample, {"X=3,2,2", "w_ih=2,2", "w_hh=2,2", "b_ih=2", "b_hh=2"}, {"Y", "h_n"});
  return finish(builder, false);
}

REGISTER(gru) {
  auto builder = cell_operator("GRU");
  builder.doc("Layers of gated recurrent units, gates in the order reset, update, candidate.")
      .arg("linear_before_reset", &CellArgs::linear_before_reset, true,
           "the reset gate is applied behind the product with w_hh, not in front of it")
      .example_net(kGruExample,
                   {"X=3,2,1", "w_ih=6,1", "w_hh=6,2", "b_ih=6", "b_hh=6", "v_ih=6,1", "v_hh=6,2", "c_ih=6", "c_hh=6",
                    "lengths=int32,2:3,1"},
                   {"Y", "h_n"});
  return finish(builder, false);
}

REGISTER(lstm) {
  auto builder = cell_operator("LSTM");
  builder.doc("Layers of LSTMs, gates in the order i, f, o, g.")
      .arg("forget_bias", &CellArgs::forget_bias, 0.0F, "added to the forget gate before its sigmoid")
      .example_net(kLstmExample,
                   {"X=2,2,2", "h0=2,2,1", "c0=2,2,1", "w_ih=4,2", "w_hh=4,1", "b_ih=4", "b_hh=4", "v_ih=4,1",
                    "v_hh=4,1", "c_ih=4", "c_hh=4"},
                   {"Y", "h_n", "c_n"});
  return finish(builder, true);
}

bool is_cell_operator(const OperatorDef& op) { return op.type() == "RNN" || op.type() == "GRU" || op.type() == "LSTM"; }

// The operator is gone before anyone could warn of arguments that it does not read.
void refuse_unknown_args(const OperatorDef& op) {
  for (const Argument& arg : op.arg())
    require(check_arg_name(op_spec(op.type()), arg).empty(),
            "{} has no argument \"{}\"; `stepnet ops {}` tells those it has", op.type(), arg.name(), op.type());
}

std::vector<OperatorDef> expanded(const OperatorDef& op, const NetDef& net, int index) {
  const BoundOp bound = bind_op(op, net.name(), index);
  try {
    refuse_unknown_args(op);
    return expand_layers(op, *static_cast<const CellArgs*>(bound.args.get()));
  } catch (Error& e) {
    add_op_context(e, bound);
    throw;
  }
}

}  // namespace

void expand_cell_operators(NetDef& net) {
  if (std::ranges::none_of(net.op(), is_cell_operator)) return;
  google::protobuf::RepeatedPtrField<OperatorDef> ops;
  for (int i = 0; i < net.op_size(); ++i) {
    if (!is_cell_operator(net.op(i))) {
      *ops.Add() = net.op(i);
      continue;
    }
    for (OperatorDef& op : expanded(net.op(i), net, i)) *ops.Add() = std::move(op);
  }
  net.mutable_op()->Swap(&ops);
}

}  // namespace stepnet
