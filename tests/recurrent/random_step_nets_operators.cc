// The operators of random step nets.
#include <algorithm>
#include <array>

#include "tests/recurrent/random_step_nets_draft.h"

namespace stepnet::testing {
namespace {

using Names = std::vector<std::string>;

void add_unary(Draft& d) {
  static const Names types = {"Tanh",        "Tanh", "Sigmoid",  "Sigmoid", "Scale",    "Scale",     "Negative", "Copy",
                              "Sqr",         "Gelu", "Softsign", "Elu",     "Relu",     "LeakyRelu", "Swish",    "Abs",
                              "HardSigmoid", "Sin",  "Cos",      "Erf",     "Softplus", "Clip"};
  static const std::set<std::string> kinks = {"Relu", "LeakyRelu", "Elu", "Softsign", "Abs", "HardSigmoid", "Clip"};
  const StepValue x = any_value(d);
  const std::string& type = d.dice.pick(types);
  if (kinks.count(type) > 0) d.net.has_kinks = true;
  std::vector<Argument> args;
  if (type == "Scale") args.push_back(make_arg("scale", d.dice.chance(0.5) ? 0.5F : -0.75F));
  if (type == "Clip") args = {make_arg("min", -0.5F), make_arg("max", 0.8F)};
  emit(d, type, {x.name}, x.width, args);
}

// Functions of positive numbers, of what is positive, and the exponential function of what is bounded.
void add_positive(Draft& d) {
  const StepValue x = any_value(d);
  const std::string bounded = emit(d, d.dice.chance(0.5) ? "Tanh" : "Sigmoid", {x.name}, x.width);
  const std::string power = emit(d, d.dice.chance(0.7) ? "Exp" : "Expm1", {bounded}, x.width);
  if (d.dice.chance(0.4)) return;
  const std::string positive = emit(d, d.dice.chance(0.5) ? "Softplus" : "Exp", {power}, x.width);
  static const Names types = {"Log", "Log1p", "Sqrt", "Rsqrt", "Reciprocal", "Div"};
  const std::string& type = d.dice.pick(types);
  Names inputs = {positive};
  if (type == "Div") inputs.insert(inputs.begin(), d.dice.chance(0.5) ? x.name : value_of_width(d, x.width).name);
  emit(d, type, inputs, x.width);
}

void add_binary(Draft& d) {
  const StepValue a = any_value(d), b = d.dice.chance(0.1) ? a : value_of_width(d, a.width);
  static const Names types = {"Add", "Add", "Sub", "Sub", "Mul", "Mul", "Sum", "Sum", "Max", "Min"};
  const std::string& type = d.dice.pick(types);
  if (type == "Max" || type == "Min") d.net.has_kinks = true;
  Names inputs = {a.name, b.name};
  if (type == "Sum")
    for (int64_t more = d.dice.between(-1, 2); more > 0; --more)
      inputs.push_back(d.dice.chance(0.3) ? a.name : value_of_width(d, a.width).name);
  if (d.dice.chance(0.3)) std::swap(inputs[0], inputs[1]);
  emit(d, type, inputs, a.width);
}

// A tensor from outside that is the same in every timestep, and simply added, or laid over the samples.
void add_constant(Draft& d) {
  const StepValue x = any_value(d);
  if (d.dice.chance(0.6)) {
    const std::string k = add_feed(d, "k", {1, kBatch, x.width}, 0.5);
    d.net.widths[k] = x.width;
    Names inputs = {x.name, k};
    if (d.dice.chance(0.5)) std::swap(inputs[0], inputs[1]);
    static const Names types = {"Add", "Add", "Sub", "Sum", "Mul"};
    emit(d, d.dice.pick(types), inputs, x.width);
    return;
  }
  const std::string row = add_feed(d, "r", {x.width}, 0.5);
  emit(d, d.dice.chance(0.7) ? "Add" : "Mul", {x.name, row}, x.width, {make_arg("broadcast", 1)});
}

// Two operands of which one repeats, or both do: a tensor from outside of lower rank or with sizes of 1, or a value
// with one element for each sample.
void add_repeated(Draft& d) {
  const StepValue x = any_value(d);
  std::string other;
  if (d.dice.chance(0.4)) {
    other = value_of_width(d, 1).name;
  } else {
    const std::vector<std::vector<int64_t>> shapes = {
        {x.width}, {1, x.width}, {1, 1, x.width}, {kBatch, 1}, {1, kBatch, 1}, {kBatch, x.width}, {1}, {}};
    other = add_feed(d, "r", d.dice.pick(shapes), 0.5);
  }
  Names inputs = {x.name, other};
  if (d.dice.chance(0.5)) std::swap(inputs[0], inputs[1]);
  static const Names types = {"Add", "Add", "Sub", "Mul"};
  const std::string made = emit(d, d.dice.pick(types), inputs, x.width);
  if (!d.dice.chance(0.2)) return;
  const std::string row = add_feed(d, "r", {1, 1, x.width}, 0.5), column = add_feed(d, "r", {1, kBatch, 1}, 0.5);
  const StepValue both{fresh(d), x.width};
  emit_to(d, d.dice.pick(types), {row, column}, {both});
  emit(d, d.dice.pick(types), {both.name, made}, x.width);
}

void add_product(Draft& d) {
  const StepValue x = any_value(d);
  emit_product(d, x, d.dice.pick(d.widths));
}

void add_concat(Draft& d) {
  std::vector<StepValue> parts;
  for (int64_t i = d.dice.between(1, 3); i >= 0 && parts.size() < 3; --i) parts.push_back(any_value(d));
  const int64_t axis = d.dice.chance(0.8) ? 2 : -1;
  const std::string joined = emit_joined(d, parts, axis);
  if (!d.dice.chance(0.5)) return;
  const int64_t k = d.net.widths.at(joined), n = d.dice.pick(d.widths);
  std::vector<std::string> inputs = {joined, add_weights(d, n, k)};
  if (d.dice.chance(0.8)) inputs.push_back(add_bias(d, n));
  const std::string made = emit(d, "FC", inputs, n, {make_arg("axis", d.dice.chance(0.9) ? axis : axis == 2 ? -1 : 2)});
  // Often a part is overwritten when the product has read it.
  if (d.in_place > 0 && d.dice.chance(0.3)) emit(d, "Tanh", {parts[0].name}, parts[0].width);
  if (d.dice.chance(0.3)) emit(d, "Tanh", {made}, n);
}

std::vector<int64_t> random_parts(Draft& d, int64_t width) {
  std::vector<int64_t> parts = {d.dice.between(1, width - 1)};
  parts.push_back(width - parts[0]);
  if (parts[1] > 1 && d.dice.chance(0.4)) {
    const int64_t third = d.dice.between(1, parts[1] - 1);
    parts[1] -= third;
    parts.push_back(third);
  }
  return parts;
}

void add_split(Draft& d) {
  const StepValue x = any_value(d);
  if (x.width < 2) return add_unary(d);
  std::vector<int64_t> parts = random_parts(d, x.width);
  std::vector<Argument> args = {make_arg("axis", d.dice.chance(0.8) ? 2 : -1)};
  Names inputs = {x.name};
  if (x.width % 2 == 0 && d.dice.chance(0.4)) {
    parts = {x.width / 2, x.width / 2};
  } else if (d.dice.chance(0.7)) {
    args.push_back(make_arg("split", parts));
  } else {
    inputs.push_back(add_integers(d, parts));
  }
  std::vector<StepValue> outputs;
  for (const int64_t part : parts) outputs.push_back({fresh(d), part});
  emit_to(d, "Split", inputs, outputs, args);
}

void add_slice(Draft& d) {
  const StepValue x = any_value(d);
  const int64_t from = d.dice.below(x.width), to = d.dice.between(from + 1, x.width);
  const std::vector<int64_t> starts = {0, 0, from}, ends = {-1, -1, to};
  if (d.dice.chance(0.5)) {
    emit(d, "Slice", {x.name}, to - from, {make_arg("starts", starts), make_arg("ends", ends)});
  } else {
    const std::string first = add_integers(d, starts), last = add_integers(d, ends);
    emit(d, "Slice", {x.name, first, last}, to - from);
  }
}

// To another shape and back: by a shape that is an argument, an input, or the old one.
void add_reshape(Draft& d) {
  const StepValue x = any_value(d);
  std::vector<int64_t> between = {0, 0, x.width};
  if (x.width % 2 == 0) between = {0, 0, x.width / 2, 2};
  if (d.dice.chance(0.3)) between = {0, -1, x.width, 1};
  const StepValue parts{fresh(d), between.size() == 3 ? x.width : 0};
  const std::string old = fresh(d);
  if (d.dice.chance(0.6)) {
    emit_to(d, "Reshape", {x.name}, {parts, {old, 0}}, {make_arg("shape", between)});
  } else {
    const std::string shape = add_integers(d, between);
    emit_to(d, "Reshape", {x.name, shape}, {parts, {old, 0}});
  }
  std::string middle = parts.name;
  if (d.dice.chance(0.5)) {
    middle = fresh(d);
    emit_to(d, "Tanh", {parts.name}, {{middle, parts.width}});
  }
  const std::vector<int64_t> back = {0, 0, x.width};
  const StepValue made{fresh(d), x.width};
  const std::string unused = fresh(d);
  const int64_t how = d.dice.below(3);
  if (how == 0) emit_to(d, "Reshape", {middle, old}, {made, {unused, 0}});
  if (how == 1) emit_to(d, "Reshape", {middle}, {made, {unused, 0}}, {make_arg("shape", back)});
  if (how == 2) {
    const std::string shape = add_integers(d, back);
    emit_to(d, "Reshape", {middle, shape}, {made});
  }
}

void add_alias(Draft& d) {
  const StepValue x = any_value(d);
  const StepValue made{fresh(d), x.width};
  emit_to(d, "Alias", {x.name}, {made});
}

void add_layer_norm(Draft& d) {
  const StepValue x = any_value(d);
  std::vector<Argument> args = {make_arg("axis", 2), make_arg("epsilon", 0.1F)};
  Names inputs = {x.name};
  if (d.dice.chance(0.3)) {
    inputs.push_back(add_feed(d, "g", {x.width}));
    inputs.push_back(add_bias(d, x.width));
    args.push_back(make_arg("elementwise_affine", true));
  }
  const bool shows = d.dice.chance(0.3);
  const StepValue made{fresh(d), x.width}, mean{fresh(d), shows ? 1 : 0}, std{fresh(d), shows ? 1 : 0};
  emit_to(d, "LayerNorm", inputs, {made, mean, std}, args);
}

void add_softmax(Draft& d) {
  const StepValue x = any_value(d);
  emit(d, "Softmax", {x.name}, x.width, {make_arg("axis", 2)});
}

// Gates for a unit, often by another name too.
std::string gates_for(Draft& d, int64_t width) {
  const std::string gates = value_of_width(d, width).name;
  if (!d.dice.chance(0.3)) return gates;
  const StepValue other{fresh(d), width};
  emit_to(d, "Alias", {gates}, {other});
  return d.dice.chance(0.8) ? other.name : gates;
}

void add_lstm_unit(Draft& d) {
  const int64_t width = d.dice.pick(d.widths);
  const std::string h = value_of_width(d, width).name, c = value_of_width(d, width).name,
                    gates = gates_for(d, 4 * width);
  std::vector<StepValue> outputs = {{fresh(d), width}, {fresh(d), width}};
  if (d.dice.chance(0.15)) outputs.push_back({fresh(d), 4 * width});
  std::vector<Argument> args = {make_arg("sequence_lengths", 0)};
  if (d.dice.chance(0.2)) args.push_back(make_arg("forget_bias", 1.0F));
  emit_to(d, "LSTMUnit", {h, c, gates, "timestep"}, outputs, args);
}

void add_gru_unit(Draft& d) {
  const int64_t width = d.dice.pick(d.widths);
  const std::string h = value_of_width(d, width).name, gates = gates_for(d, 3 * width);
  emit(d, "GRUUnit", {h, gates, "timestep"}, width, {make_arg("sequence_lengths", 0)});
}

void add_mat_mul(Draft& d) {
  const StepValue x = any_value(d);
  const int64_t n = d.dice.pick(d.widths);
  const std::string weights = add_weights(d, n, x.width);
  const StepValue rows{fresh(d), 0}, made{fresh(d), n};
  emit_to(d, "MatMul", {x.name, weights}, {rows}, {make_arg("axis_a", 2), make_arg("trans_b", true)});
  emit_to(d, "Reshape", {rows.name}, {made, {fresh(d), 0}}, {make_arg("shape", std::vector<int64_t>{1, -1, n})});
}

// Types are put right where the net runs in float32.
void add_time(Draft& d) {
  const StepValue x = any_value(d), time{fresh(d), 0}, small{fresh(d), 0};
  emit_to(d, "Cast", {"timestep"}, {time}, {make_arg("to", 13)});
  emit_to(d, "Scale", {time.name}, {small}, {make_arg("scale", 0.125F)});
  emit(d, d.dice.chance(0.5) ? "Mul" : "Add", {x.name, small.name}, x.width,
       {make_arg("broadcast", 1), make_arg("axis", 0)});
  d.net.grows = true;
}

void add_total(Draft& d) {
  const StepValue x = any_value(d), y = any_value(d), sum{fresh(d), 0};
  emit_to(d, "SumElements", {x.name}, {sum}, {make_arg("average", true)});
  emit(d, d.dice.chance(0.5) ? "Mul" : "Add", {y.name, sum.name}, y.width, {make_arg("broadcast", 1)});
  d.net.mixes_samples = true;
}

void add_stop(Draft& d) {
  const StepValue x = any_value(d);
  emit(d, "StopGradient", {x.name}, x.width);
  d.net.has_kinks = true;  // differences go through
}

// Elements of gates with weights of their own, of one input: products that become one.
void add_gated(Draft& d) {
  const StepValue x = any_value(d);
  const int64_t width = d.dice.pick(d.widths);
  const std::string a = emit_product(d, x, width), b = emit_product(d, x, width);
  const std::string s = emit(d, "Sigmoid", {a}, width), t = emit(d, "Tanh", {b}, width);
  emit(d, "Mul", {s, t}, width);
}

// A matrix for each sample, of which rows or columns are repeated, are a product, or come from outside, and what it is
// by a vector, or the sums of its rows or columns.
// A vector for all samples.
std::string outside_row(Draft& d, const StepValue& x) { return add_feed(d, "r", {x.width}, 0.5); }

// What the sum of a value's row has to do with the row.
void add_centred(Draft& d) {
  const StepValue x = any_value(d);
  static const Names types = {"Add", "Sub", "Mul"};
  const StepValue sum{fresh(d), 0};
  emit_to(d, "MatchShape", {x.name, add_feed(d, "r", {1, kBatch, 1}, 0.5)}, {sum});
  emit(d, "Tanh", {emit(d, d.dice.pick(types), {x.name, sum.name}, x.width)}, x.width);
}

// A state of a matrix for each sample.
CellState& add_matrix_state(Draft& d, int64_t rows, int64_t columns) {
  std::vector<CellState>& states = d.net.cell.states;
  CellState state;
  state.input = fmt::format("s{}_p", states.size());
  state.initial = fmt::format("i{}", states.size());
  d.net.widths[state.input] = 0;
  d.net.feeds.push_back({.name = state.initial, .sizes = {1, kBatch, rows, columns}, .scale = 0.5});
  states.push_back(state);
  return states.back();
}

void add_matrix(Draft& d) {
  const StepValue x = any_value(d), y = any_value(d);
  const auto expanded = [&](const StepValue& v, int64_t dim) {
    const StepValue made{fresh(d), 0};
    emit_to(d, "ExpandDims", {v.name}, {made}, {make_arg("dims", std::vector<int64_t>{dim})});
    return made.name;
  };
  const auto made_by = [&](const std::string& type, const Names& inputs, const std::vector<Argument>& args = {}) {
    const StepValue made{fresh(d), 0};
    emit_to(d, type, inputs, {made}, args);
    return made.name;
  };
  const std::string column = expanded(x, 3), row = expanded(y, 2);
  const auto outside = [&] {
    const std::vector<std::vector<int64_t>> shapes = {{x.width, y.width}, {1, 1, x.width, y.width}, {x.width, 1}};
    return add_feed(d, "r", d.dice.pick(shapes), 0.5);
  };
  static const Names types = {"Add", "Sub", "Mul"};
  std::string matrix;
  switch (d.dice.below(4)) {
    case 0:
      matrix = made_by("BatchMatMul", {column, row});
      break;
    case 1:
      matrix = made_by("BatchMatMul", {column, expanded(y, 3)}, {make_arg("trans_b", true)});
      break;
    case 2:
      matrix = made_by(d.dice.pick(types), {column, row});
      break;
    default:
      matrix = made_by(d.dice.pick(types), {made_by(d.dice.pick(types), {row, outside()}), column});
  }
  matrix = made_by(d.dice.chance(0.7) ? "Tanh" : "Sigmoid", {matrix});
  if (d.dice.chance(0.3)) matrix = made_by(d.dice.pick(types), {matrix, d.dice.chance(0.5) ? row : outside()});
  const auto read_by = [&](const StepValue& v) {  // [1, B, x.width]
    if (d.dice.chance(0.3))
      return made_by("Squeeze", {made_by("BatchMatMul", {expanded(v, 2), matrix}, {make_arg("trans_b", true)})},
                     {make_arg("dims", std::vector<int64_t>{2})});
    return made_by("Squeeze", {made_by("BatchMatMul", {matrix, expanded(v, 3)})},
                   {make_arg("dims", std::vector<int64_t>{3})});
  };
  if (d.dice.chance(0.5)) {  // what is read from a matrix decides how it, or a state, changes
    CellState* state = d.dice.chance(0.6) ? &add_matrix_state(d, x.width, y.width) : nullptr;
    if (state) matrix = made_by(d.dice.pick(types), {state->input, matrix});
    const std::string error =
        made_by(d.dice.pick(types), {read_by(y), d.dice.chance(0.7) ? x.name : outside_row(d, x)});
    const StepValue back{fresh(d), 0};
    emit_to(d, "ExpandDims", {error}, {back}, {make_arg("dims", std::vector<int64_t>{3})});
    matrix = d.dice.chance(0.5) ? made_by(d.dice.pick(types), {matrix, made_by("BatchMatMul", {back.name, row})})
                                : made_by(d.dice.pick(types), {matrix, back.name});
    matrix = made_by("Tanh", {matrix});
    if (state) state->output = matrix;
  }
  const auto squeezed = [&](const std::string& v, int64_t dim) {
    return made_by("Squeeze", {v}, {make_arg("dims", std::vector<int64_t>{dim})});
  };
  const auto quarter = [&](const std::string& v, int64_t width) {
    emit(d, "Scale", {v}, width, {make_arg("scale", 0.25F)});
  };
  switch (d.dice.below(6)) {
    case 0:
      return quarter(squeezed(made_by("MatchShape", {matrix, column}), 3), x.width);
    case 1:
      return quarter(squeezed(made_by("MatchShape", {matrix, row}), 2), y.width);
    case 2:
      return quarter(squeezed(made_by("BatchMatMul", {matrix, expanded(y, 3)}), 3), x.width);
    case 3:
      return quarter(squeezed(made_by("BatchMatMul", {matrix, column}, {make_arg("trans_a", true)}), 3), y.width);
    case 4:
      return quarter(squeezed(made_by("BatchMatMul", {column, matrix}, {make_arg("trans_a", true)}), 2), y.width);
    default: {
      const std::string total = made_by("MatchShape", {matrix, add_feed(d, "r", {1, kBatch, 1, 1}, 0.5)});
      return quarter(made_by("Mul", {y.name, squeezed(total, 3)}), y.width);
    }
  }
}

struct Choice {
  int weight;
  void (*add)(Draft&);
};

constexpr std::array<Choice, 22> kChoices = {
    {{16, add_unary},  {16, add_binary},   {6, add_positive}, {7, add_constant}, {9, add_repeated}, {7, add_product},
     {9, add_concat},  {5, add_split},     {5, add_slice},    {4, add_reshape},  {5, add_alias},    {4, add_layer_norm},
     {1, add_softmax}, {4, add_lstm_unit}, {4, add_gru_unit}, {2, add_mat_mul},  {1, add_time},     {1, add_total},
     {1, add_stop},    {3, add_gated},     {4, add_matrix},   {2, add_centred}}};

}  // namespace

std::string emit_joined(Draft& d, const std::vector<StepValue>& parts, int64_t axis) {
  Names inputs;
  int64_t width = 0;
  for (const StepValue& part : parts) inputs.push_back(part.name), width += part.width;
  std::vector<StepValue> outputs = {{fresh(d), width}};
  if (d.dice.chance(0.8)) outputs.push_back({fresh(d), 0});
  emit_to(d, "Concat", inputs, outputs, {make_arg("axis", axis)});
  return outputs[0].name;
}

void add_random_operators(Draft& d) {
  int64_t total = 0;
  for (const Choice& choice : kChoices) total += choice.weight;
  int64_t drawn = d.dice.below(total);
  for (const Choice& choice : kChoices) {
    if (drawn < choice.weight) return choice.add(d);
    drawn -= choice.weight;
  }
}

// A network over a sequence from outside, from a state that is a value of the step.
void add_nested(Draft& d) {
  const StepValue first = any_value(d);
  const int64_t width = first.width;
  const std::string name = fresh(d);
  const std::string sequence = add_feed(d, "e", {d.dice.between(1, 3), kBatch, width}, 0.7);
  const auto inner = [&](const std::string& part) { return name + part; };
  OperatorDef op = make_op("RecurrentNetwork", {sequence, first.name}, {});
  op.set_name(name);
  RecurrentDef& def = *op.MutableExtension(recurrent);
  SequenceLink& link = *def.add_sequence();
  link.set_outer(sequence), link.set_inner(inner("_x"));
  StateLink& state = *def.add_state();
  state.set_input(inner("_p")), state.set_output(inner("_h")), state.set_initial(first.name);
  const StepValue last{fresh(d), width};
  state.set_all(inner("_all")), state.set_last(last.name);
  op.add_output(state.all()), op.add_output(state.last());
  NetDef& step = *def.mutable_step_net();
  step.set_name(inner("_step"));
  std::string x = inner("_p");
  if (d.dice.chance(0.5)) {
    const std::string weights = add_weights(d, width, width), bias = add_bias(d, width);
    *step.add_op() = make_op("FC", {x, weights, bias}, {inner("_w")}, {make_arg("axis", 2)});
    x = inner("_w");
  }
  *step.add_op() = make_op(d.dice.chance(0.5) ? "Mul" : "Add", {inner("_x"), x}, {inner("_m")});
  *step.add_op() = make_op("Tanh", {inner("_m")}, {inner("_h")});
  if (d.dice.chance(0.3)) def.set_reverse(true);
  emit_to(d, "RecurrentNetwork", {sequence, first.name}, {{inner("_all"), 0}, last});
  *d.net.cell.step_net.mutable_op(d.net.cell.step_net.op_size() - 1) = op;
}

}  // namespace stepnet::testing
