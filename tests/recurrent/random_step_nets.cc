// Cells, states and outputs of random step nets.
#include "tests/recurrent/random_step_nets.h"

#include <algorithm>
#include <cstdlib>

#include "tests/recurrent/random_step_nets_draft.h"

namespace stepnet::testing {
namespace {

StepValue value(Draft& d, const std::string& name) { return {name, d.net.widths.at(name)}; }

// The sequence's product and the state's, added.
std::string gates_of(Draft& d, const StepValue& x, const StepValue& h, int64_t width) {
  const int64_t how = d.dice.below(5);
  if (how == 0) {
    const std::string joined = emit_joined(d, d.dice.chance(0.5) ? std::vector{x, h} : std::vector{h, x}, 2);
    return emit_product(d, value(d, joined), width);
  }
  std::string state = emit_product(d, h, width);
  if (how == 1) return emit(d, "Add", {state, add_bias(d, width)}, width, {make_arg("broadcast", 1)});
  const std::string input = emit_product(d, x, width);
  if (how == 2) {
    const StepValue norm{fresh(d), width};
    emit_to(d, "LayerNorm", {state}, {norm, {fresh(d), 0}, {fresh(d), 0}},
            {make_arg("axis", 2), make_arg("epsilon", 0.1F)});
    state = norm.name;
  }
  return emit(d, d.dice.chance(0.5) ? "Sum" : "Add", {input, state}, width);
}

std::string other_name(Draft& d, const std::string& name, int64_t width) {
  if (!d.dice.chance(0.25)) return name;
  const StepValue other{fresh(d), width};
  emit_to(d, "Alias", {name}, {other});
  return other.name;
}

StepValue simple_cell(Draft& d, const StepValue& x) {
  const int64_t width = d.dice.pick(d.widths);
  const StepValue h{add_state(d, width).input, width};
  CellState& state = d.net.cell.states.back();
  const std::string sum = gates_of(d, x, h, width);
  static const std::vector<std::string> types = {"Tanh", "Tanh", "Sigmoid"};
  state.output = emit(d, d.dice.pick(types), {sum}, width);
  return {state.output, width};
}

StepValue lstm_cell(Draft& d, const StepValue& x) {
  const int64_t width = d.dice.pick(d.widths);
  const StepValue h{add_state(d, width).input, width}, c{add_state(d, width).input, width};
  const std::string gates = other_name(d, gates_of(d, x, h, 4 * width), 4 * width);
  const StepValue h_next{fresh(d), width}, c_next{fresh(d), width};
  emit_to(d, "LSTMUnit", {h.name, c.name, gates, "timestep"}, {h_next, c_next}, {make_arg("sequence_lengths", 0)});
  const size_t count = d.net.cell.states.size();
  d.net.cell.states[count - 2].output = h_next.name;
  d.net.cell.states[count - 1].output = c_next.name;
  return h_next;
}

StepValue gru_cell(Draft& d, const StepValue& x) {
  const int64_t width = d.dice.pick(d.widths);
  const StepValue h{add_state(d, width).input, width};
  const std::string gates = other_name(d, gates_of(d, x, h, 3 * width), 3 * width);
  const StepValue next{fresh(d), width};
  emit_to(d, "GRUUnit", {h.name, gates, "timestep"}, {next}, {make_arg("sequence_lengths", 0)});
  d.net.cell.states.back().output = next.name;
  return next;
}

// States that depend on the sequence alone, or on themselves alone.
StepValue delay_cell(Draft& d, const StepValue& x) {
  const StepValue before{add_state(d, x.width).input, x.width};
  const bool copies = d.dice.chance(0.6);
  d.net.cell.states.back().output = emit(d, copies ? "Copy" : "Tanh", {x.name}, x.width);
  if (d.dice.chance(0.5)) emit(d, d.dice.chance(0.5) ? "Sub" : "Add", {before.name, x.name}, x.width);
  return before;
}

// What the state was one timestep before its last value is a state of its own.
StepValue far_cell(Draft& d, const StepValue& x) {
  const StepValue near{add_state(d, x.width).input, x.width}, far{add_state(d, x.width).input, x.width};
  const std::string both = emit(d, d.dice.chance(0.5) ? "Mul" : "Sub", {near.name, far.name}, x.width);
  const std::string next = emit(d, "Tanh", {emit(d, "Sum", {both, x.name}, x.width)}, x.width);
  const size_t count = d.net.cell.states.size();
  d.net.cell.states[count - 2].output = next;
  d.net.cell.states[count - 1].output = near.name;
  return {next, x.width};
}

StepValue lonely_cell(Draft& d, const StepValue&) {
  const int64_t width = d.dice.pick(d.widths);
  const StepValue before{add_state(d, width).input, width};
  const int64_t how = d.dice.below(4);
  CellState& state = d.net.cell.states.back();
  std::string next;
  if (how == 0) next = emit(d, "Tanh", {before.name}, width);
  if (how == 1) next = emit(d, "Copy", {before.name}, width);
  if (how == 2) next = emit(d, "Scale", {before.name}, width, {make_arg("scale", 0.75F)});
  if (how == 3) next = emit(d, "Tanh", {emit_product(d, before, width)}, width);
  state.output = next;
  return d.dice.chance(0.5) ? before : StepValue{next, width};
}

// A state of which random operators decide.
StepValue open_cell(Draft& d, const StepValue&) {
  const int64_t width = d.dice.pick(d.widths);
  return {add_state(d, width).input, width};
}

void give_output(Draft& d, CellState& state) {
  const int64_t width = d.net.widths.at(state.input);
  if (d.dice.chance(0.1)) {  // what the step is given, or another state's
    std::vector<std::string> given;
    for (const CellState& s : d.net.cell.states)
      if (d.net.widths.at(s.input) == width) given.push_back(s.input);
    for (const CellSequence& s : d.net.cell.sequences)
      if (d.net.widths.at(s.inner) == width) given.push_back(s.inner);
    state.output = d.dice.pick(given);
    return;
  }
  const StepValue next = value_of_width(d, width);
  state.output = next.name;
  if (d.own.count(next.name) > 0 && d.dice.chance(0.2)) {
    d.net.grows = true;
  } else {
    state.output = emit(d, "Tanh", {next.name}, width);
  }
}

void add_sequences(Draft& d) {
  const int64_t count = d.dice.chance(0.3) ? 2 : 1;
  for (int64_t i = 0; i < count; ++i) {
    const std::string outer = i == 0 ? "X" : "X1", inner = i == 0 ? "x" : "x1";
    const int64_t width = d.dice.pick(d.widths);
    d.net.feeds.push_back({.name = outer, .sizes = {kSteps, kBatch, width}});
    if (i > 0) d.net.cell.sequences.push_back({outer, inner});
    d.net.widths[inner] = width;
    d.pool.push_back({inner, width});
  }
}

void show_states(Draft& d) {
  int views = 0;
  for (CellState& state : d.net.cell.states) {
    if (d.net.widths.at(state.input) == 0) continue;  // matrices
    const std::string name = state.input.substr(0, state.input.find('_'));
    if (d.dice.chance(0.5)) state.all = name + "_all", ++views;
    if (d.dice.chance(0.5)) state.last = name + "_last", ++views;
  }
  if (views > 0) return;
  const auto is_vector = [&](const CellState& state) { return d.net.widths.at(state.input) > 0; };
  CellState& first = *std::ranges::find_if(d.net.cell.states, is_vector);
  first.all = first.input.substr(0, first.input.find('_')) + "_all";
}

bool is_made(const Draft& d, const std::string& name) {
  return std::ranges::any_of(d.net.cell.step_net.op(),
                             [&](const OperatorDef& op) { return std::ranges::count(op.output(), name) > 0; });
}

void show_values(Draft& d) {
  for (int64_t i = d.dice.below(3); i > 0; --i) {
    const StepValue shown = any_value(d);
    if (!is_made(d, shown.name) && !d.dice.chance(0.3)) continue;
    if (d.unknown.count(shown.name) > 0) continue;  // refused
    d.net.cell.outputs.push_back({shown.name, fmt::format("o{}", i)});
  }
}

// Every output of an operator that is run again must be named; a network is none.
bool close_recomputed(const NetDef& step, std::set<std::string>& chosen) {
  for (bool more = true; more;) {
    more = false;
    for (const OperatorDef& op : step.op()) {
      if (std::ranges::none_of(op.output(), [&](const auto& o) { return chosen.count(o) > 0; })) continue;
      if (op.type() == "RecurrentNetwork") return false;
      for (const std::string& name : op.output()) more |= chosen.insert(name).second;
    }
  }
  return true;
}

// What has a shape that depends on data must be computed again, or there are no gradients.
void choose_recomputed(Draft& d) {
  const NetDef& step = d.net.cell.step_net;
  std::set<std::string> chosen = d.unknown;
  if (!chosen.empty() && (d.dice.chance(0.4) || !close_recomputed(step, chosen))) {
    d.net.forward_only = true;
    return;
  }
  if (d.dice.chance(0.25))
    for (int64_t i = d.dice.between(1, 3); i > 0 && step.op_size() > 0; --i)
      for (const std::string& name : step.op(static_cast<int>(d.dice.below(step.op_size()))).output())
        chosen.insert(name);
  if (close_recomputed(step, chosen)) d.net.cell.recompute.assign(chosen.begin(), chosen.end());
}

// Some rows are longer than the pieces of a fused loop; not on an imitated device, where such nets take minutes.
void choose_widths(Draft& d, uint64_t seed) {
  static const std::vector<std::vector<int64_t>> choices = {{1, 2, 3}, {2, 3, 4}, {3}, {1}, {2, 5}, {4, 8}, {8, 16}};
  static const std::vector<std::vector<int64_t>> wide = {{40, 260}, {257}, {8, 300}, {24, 72}, {33}};
  d.widths = d.dice.pick(choices);
  Dice dice(random_key(seed, "wide rows", "", 0, 0));
  if (!std::getenv("STEPNET_EMULATED_GPUS") && dice.chance(0.06)) d.widths = dice.pick(wide);
}

}  // namespace

CellState& add_state(Draft& d, int64_t width) {
  Cell& cell = d.net.cell;
  CellState state;
  const size_t index = cell.states.size();
  state.input = fmt::format("s{}_p", index);
  d.net.widths[state.input] = width;
  d.pool.push_back({state.input, width});
  std::vector<std::string> like;
  for (const CellState& s : cell.states)
    if (!s.initial.empty() && d.net.widths.at(s.input) == width) like.push_back(s.initial);
  if (d.dice.chance(0.2)) {
    state.initial = "", state.size = {width};
  } else if (!like.empty() && d.dice.chance(0.1)) {
    state.initial = d.dice.pick(like);
  } else {
    state.initial = fmt::format("i{}", index);
    StepFeed feed{.name = state.initial, .sizes = {1, kBatch, width}, .scale = 0.5};
    if (d.dice.chance(0.3)) feed.sizes.erase(feed.sizes.begin());
    if (d.dice.chance(0.2)) feed.sizes = {width};
    d.net.feeds.push_back(feed);
  }
  cell.states.push_back(state);
  return cell.states.back();
}

StepValue add_cell(Draft& d, const StepValue& x) {
  static const std::vector<StepValue (*)(Draft&, const StepValue&)> cells = {
      simple_cell, simple_cell, lstm_cell, lstm_cell,   gru_cell,  gru_cell,
      delay_cell,  delay_cell,  far_cell,  lonely_cell, open_cell, open_cell};
  return d.dice.pick(cells)(d, x);
}

// Writes over an input of the step net, by another name of it.
void overwrite_input(Draft& d) {
  const StepValue x = any_value(d);
  if (d.own.count(root_of(d, x.name)) > 0) return;
  const StepValue other{fresh(d), x.width};
  emit_to(d, "Alias", {x.name}, {other});
  OperatorDef op = make_op("Tanh", {other.name}, {other.name});
  if (d.dice.chance(0.5)) op = make_op("Add", {other.name, value_of_width(d, x.width).name}, {other.name});
  *d.net.cell.step_net.add_op() = op;
  d.net.overwrites_input = true;
}

StepNet random_step_net(uint64_t seed) {
  Draft d(seed);
  d.net.cell.sequences = {{"X", "x"}};
  d.net.cell.step_net.set_name("step");
  choose_widths(d, seed);
  if (d.dice.chance(0.5)) d.in_place = d.dice.chance(0.5) ? 0.1 : 0.35;
  const bool nests = d.dice.chance(0.05);
  add_sequences(d);
  for (int64_t layer = d.dice.between(1, 3); layer > 0; --layer) {
    const StepValue x = d.dice.chance(0.7) ? d.pool.back() : any_value(d);
    const StepValue made = add_cell(d, x);
    for (int64_t i = d.dice.below(layer == 1 ? 7 : 3); i > 0; --i) add_random_operators(d);
    if (nests && layer == 1) add_nested(d);
    d.pool.push_back(made);  // likely to be read
  }
  for (size_t i = 0; i < d.net.cell.states.size(); ++i)
    if (d.net.cell.states[i].output.empty()) give_output(d, d.net.cell.states[i]);
  for (int64_t i = d.dice.below(3); i > 0; --i) add_random_operators(d);
  if (d.dice.chance(0.04)) overwrite_input(d);
  show_states(d);
  show_values(d);
  choose_recomputed(d);
  d.net.cell.reverse = d.dice.chance(0.2);
  if (!d.net.mixes_samples && d.dice.chance(0.2)) {
    d.net.cell.lengths = "len";
    d.net.feeds.push_back({.name = "len", .sizes = {kBatch}, .kind = StepFeed::Kind::lengths});
  }
  return d.net;
}

}  // namespace stepnet::testing
