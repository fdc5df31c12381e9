// Values, feeds and operators of a step net that is being generated.
#include "tests/recurrent/random_step_nets_draft.h"

#include <algorithm>
#include <cmath>

#include "stepnet/bound_op.h"

namespace stepnet::testing {
std::string root_of(const Draft& d, std::string name) {
  for (auto it = d.storage.find(name); it != d.storage.end(); it = d.storage.find(name)) name = it->second;
  return name;
}

namespace {

// What gradients read, so that it must not be overwritten. Where that is not known, both.
bool gradient_reads_inputs(const std::string& type) {
  static const std::set<std::string> none = {"Add",   "Sub",     "Sum",     "Scale",     "Negative",   "Copy",
                                             "Alias", "Concat",  "Split",   "Tanh",      "Sigmoid",    "Relu",
                                             "Slice", "Softmax", "Reshape", "LeakyRelu", "SumElements"};
  return none.count(type) == 0;
}

bool gradient_reads_outputs(const std::string& type) {
  static const std::set<std::string> all = {
      "Tanh",      "Sigmoid",          "Relu",  "Softmax", "LSTMUnit", "GRUUnit",     "LayerNorm", "Elu",
      "LeakyRelu", "RecurrentNetwork", "Exp",   "Expm1",   "Softplus", "HardSigmoid", "Clip",      "Sqrt",
      "Rsqrt",     "Reciprocal",       "Log1p", "Div",     "Max",      "Min"};
  return all.count(type) > 0;
}

bool is_integers(const Draft& d, const std::string& name) {
  return std::ranges::any_of(
      d.net.feeds, [&](const StepFeed& feed) { return feed.name == name && feed.kind == StepFeed::Kind::integers; });
}

bool has_unknown_shape(const Draft& d, const std::vector<std::string>& inputs) {
  return std::ranges::any_of(
      inputs, [&](const std::string& name) { return d.unknown.count(name) > 0 || is_integers(d, name); });
}

bool binds(const OperatorDef& op) {
  try {
    bind_op(op, "random", 0);
    return true;
  } catch (const Error&) {
    return false;  // not allowed in place
  }
}

// An input that the operator may write over, or "".
std::string overwritten(Draft& d, const std::string& type, const std::vector<std::string>& inputs, int64_t width,
                        const std::vector<Argument>& args) {
  if (!d.dice.chance(d.in_place)) return "";
  const std::string& name = d.dice.pick(inputs);
  const auto known = d.net.widths.find(name);
  if (known == d.net.widths.end() || known->second != width || d.own.count(name) == 0) return "";
  const std::string root = root_of(d, name);
  if (d.needed.count(root) > 0 && !d.dice.chance(0.03)) return "";
  if (d.own.count(root) == 0) {
    if (!d.dice.chance(0.15)) return "";
    d.net.overwrites_input = true;
  }
  return binds(make_op(type, inputs, {name}, args)) ? name : "";
}

}  // namespace

std::string add_feed(Draft& d, const std::string& prefix, std::vector<int64_t> sizes, double scale) {
  const std::string name = fmt::format("{}{}", prefix, d.parameters++);
  d.net.feeds.push_back({.name = name, .sizes = std::move(sizes), .scale = scale});
  return name;
}

std::string add_integers(Draft& d, std::vector<int64_t> values) {
  const std::string name = fmt::format("n{}", d.parameters++);
  const auto count = static_cast<int64_t>(values.size());
  d.net.feeds.push_back(
      {.name = name, .sizes = {count}, .kind = StepFeed::Kind::integers, .values = std::move(values)});
  return name;
}

std::string add_weights(Draft& d, int64_t n, int64_t k) {
  std::vector<std::string> like;
  for (const StepFeed& feed : d.net.feeds)
    if (feed.name[0] == 'W' && feed.sizes == std::vector<int64_t>{n, k}) like.push_back(feed.name);
  if (!like.empty() && d.dice.chance(0.2)) return d.dice.pick(like);
  return add_feed(d, "W", {n, k}, 0.6 / std::sqrt(static_cast<double>(k)));
}

std::string add_bias(Draft& d, int64_t n) {
  std::vector<std::string> like;
  for (const StepFeed& feed : d.net.feeds)
    if (feed.name[0] == 'b' && feed.sizes == std::vector<int64_t>{n}) like.push_back(feed.name);
  if (!like.empty() && d.dice.chance(0.2)) return d.dice.pick(like);
  return add_feed(d, "b", {n}, 0.3);
}

std::string fresh(Draft& d) { return fmt::format("v{}", d.names++); }

StepValue any_value(Draft& d) {
  const auto count = static_cast<int64_t>(d.pool.size());
  return d.dice.chance(0.5) ? d.pool[count - 1 - d.dice.below(std::min<int64_t>(count, 4))] : d.dice.pick(d.pool);
}

StepValue value_of_width(Draft& d, int64_t width) {
  std::vector<StepValue> fitting;
  for (const StepValue& v : d.pool)
    if (v.width == width) fitting.push_back(v);
  if (!fitting.empty() && !d.dice.chance(0.1)) return d.dice.pick(fitting);
  if (d.dice.chance(0.3)) {
    const StepValue value{add_feed(d, "k", {1, kBatch, width}, 0.5), width};
    d.net.widths[value.name] = width;
    return value;
  }
  return {emit_product(d, any_value(d), width), width};
}

std::string emit(Draft& d, const std::string& type, const std::vector<std::string>& inputs, int64_t width,
                 const std::vector<Argument>& args) {
  const std::string over = overwritten(d, type, inputs, width, args);
  if (!over.empty()) {
    d.needed.erase(root_of(d, over));
    *d.net.cell.step_net.add_op() = make_op(type, inputs, {over}, args);
    if (has_unknown_shape(d, inputs)) d.unknown.insert(over);
    if (gradient_reads_outputs(type)) d.needed.insert(root_of(d, over));
    return over;
  }
  const StepValue made{fresh(d), width};
  emit_to(d, type, inputs, {made}, args);
  return made.name;
}

void emit_to(Draft& d, const std::string& type, const std::vector<std::string>& inputs,
             const std::vector<StepValue>& outputs, const std::vector<Argument>& args) {
  OperatorDef& op = *d.net.cell.step_net.add_op();
  op = make_op(type, inputs, {}, args);
  if (gradient_reads_inputs(type))
    for (const std::string& name : inputs) d.needed.insert(root_of(d, name));
  for (const StepValue& made : outputs) {
    op.add_output(made.name);
    d.own.insert(made.name);
    if (has_unknown_shape(d, inputs)) d.unknown.insert(made.name);
    if (type == "Alias") d.storage[made.name] = inputs[0];
    if (gradient_reads_outputs(type)) d.needed.insert(made.name);
    if (made.width <= 0) continue;
    d.net.widths[made.name] = made.width;
    d.pool.push_back(made);
  }
}

std::string emit_product(Draft& d, const StepValue& x, int64_t width) {
  std::vector<std::string> inputs = {x.name, add_weights(d, width, x.width)};
  if (d.dice.chance(0.8)) inputs.push_back(add_bias(d, width));
  return emit(d, "FC", inputs, width, {make_arg("axis", 2)});
}

}  // namespace stepnet::testing
