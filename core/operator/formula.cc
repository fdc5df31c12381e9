#include "stepnet/formula.h"

#include <algorithm>
#include <cassert>

#include "core/operator/in_place.h"
#include "core/operator/program_gradients.h"
#include "stepnet/error.h"
#include "stepnet/op_spec.h"

namespace stepnet {

using SlotKind = GradientProgram::SlotKind;

Formula::Formula(const OpSpec& spec, const OperatorDef& def, const void* args, std::vector<bool> wanted,
                 std::vector<bool> present)
    : spec_(spec), def_(def), args_(args), wanted_(std::move(wanted)), present_(std::move(present)) {}

int Formula::slot(SlotKind kind, int index) {
  auto& slots = program_.slots;
  const int added = static_cast<int>(slots.size());
  if (kind != SlotKind::temporary) {
    const auto [known, is_new] = slots_.try_emplace({kind, index}, added);
    if (!is_new) return known->second;
  }
  slots.push_back({kind, index, ""});
  return added;
}

int Formula::input_at(std::string_view name, int element) const {
  const int p = spec_.input_index(name);
  assert(p >= 0 && "the formula names an input that the operator does not declare");
  return p + element;
}

int Formula::output_at(std::string_view name, int element) const {
  const int p = spec_.output_index(name);
  assert(p >= 0 && "the formula names an output that the operator does not declare");
  return p + element;
}

Value Formula::x(std::string_view name, int element) { return x_at(input_at(name, element)); }
Value Formula::y(std::string_view name, int element) { return y_at(output_at(name, element)); }
Value Formula::dy(std::string_view name, int element) { return dy_at(output_at(name, element)); }

Value Formula::x_at(int i) {
  if (i >= inputs() || def_.input(i).empty()) return {};
  return {slot(SlotKind::input, i)};
}
Value Formula::y_at(int i) {
  if (i >= outputs() || def_.output(i).empty()) return {};
  return {slot(SlotKind::output, i)};
}
Value Formula::dy_at(int i) {
  if (i >= outputs() || !present_[i]) return {};
  return {slot(SlotKind::output_gradient, i)};
}

bool Formula::has_x(std::string_view name) const {
  const int i = input_at(name, 0);
  return i < inputs() && !def_.input(i).empty();
}
bool Formula::has_dy(std::string_view name, int element) const {
  const int i = output_at(name, element);
  return i < outputs() && present_[i];
}
bool Formula::wants(std::string_view name, int element) const {
  const int i = input_at(name, element);
  return i < inputs() && wanted_[i];
}
int Formula::count(std::string_view input) const {
  const auto [begin, end] = spec_.input_range(spec_.input_index(input), inputs());
  return end - begin;
}

Value Formula::op(std::string type, std::vector<Value> inputs, std::vector<Argument> args) {
  return ops(std::move(type), std::move(inputs), std::move(args), {true})[0];
}

std::vector<Value> Formula::ops(std::string type, std::vector<Value> inputs, std::vector<Argument> args,
                                const std::vector<bool>& wanted_outputs) {
  GradientProgram::Step step;
  step.type = std::move(type);
  step.args = std::move(args);
  for (const Value& v : inputs) step.inputs.push_back(v.slot);
  while (!step.inputs.empty() && step.inputs.back() < 0) step.inputs.pop_back();
  std::vector<Value> results;
  for (const bool wanted : wanted_outputs) {
    results.push_back(wanted ? Value{slot(SlotKind::temporary, 0)} : Value{});
    step.outputs.push_back(results.back().slot);
  }
  program_.steps.push_back(std::move(step));
  return results;
}

void Formula::set_reads(std::vector<bool> reads) {
  assert(!program_.steps.empty());
  program_.steps.back().reads = std::move(reads);
}

Value Formula::same_shape(Value v, Value like) {
  GradientProgram::Slot& slot = program_.slots[v.slot];
  if (slot.kind == SlotKind::temporary && like.defined() && like.slot != v.slot) slot.like = like.slot;
  return v;
}

std::vector<bool> reads_of(const GradientProgram::Step& step) {
  if (!step.reads.empty()) return step.reads;
  std::vector<bool> wanted;
  for (const int out : step.outputs) wanted.push_back(out >= 0);
  return value_reads(op_spec(step.type), static_cast<int>(step.inputs.size()), wanted);
}

std::vector<Value> Formula::insert(const GradientProgram& program,
                                   const std::function<Value(const GradientProgram::Slot&)>& given) {
  std::vector<Value> here;
  for (const GradientProgram::Slot& s : program.slots)
    here.push_back(s.kind == SlotKind::temporary ? Value{slot(SlotKind::temporary, 0)} : given(s));
  for (size_t s = 0; s < here.size(); ++s)
    if (program.slots[s].like >= 0) same_shape(here[s], here[program.slots[s].like]);
  const auto shape_of = [this](int slot) {
    while (slot >= 0 && program_.slots[slot].like >= 0) slot = program_.slots[slot].like;
    return slot;
  };
  // A step that makes another name of a value that has the shape already is none.
  const auto source_of = [&](const GradientProgram::Step& step) {
    const OpSpec& spec = op_spec(step.type);
    if (!may_be_alias(spec, 0)) return -1;
    const int source = step.inputs[aliased_input(spec, 0)], like = step.inputs[shaped_like(spec, 0)];
    return shape_of(here[source].slot) == shape_of(here[like].slot) ? source : -1;
  };
  for (GradientProgram::Step step : program.steps) {
    if (const int source = source_of(step); source >= 0) {
      here[step.outputs[0]] = here[source];
      continue;
    }
    const std::vector<bool> reads = reads_of(step);
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      int& in = step.inputs[i];
      if (in < 0) continue;
      const int slot = here[in].slot;
      in = i < reads.size() && reads[i] ? slot : shape_of(slot);
    }
    for (int& out : step.outputs)
      if (out >= 0) out = here[out].slot;
    program_.steps.push_back(std::move(step));
  }
  return here;
}

std::vector<Argument> Formula::forward_args() const { return {def_.arg().begin(), def_.arg().end()}; }

namespace {

std::vector<int> result_slots(const GradientProgram& program) {
  std::vector<int> slots;
  for (const Gradient& g : program.results)
    for (const Value& v : {g.dense, g.indices, g.values})
      if (v.defined()) slots.push_back(v.slot);
  return slots;
}

// Such an output may be left out of a call.
bool may_be_absent(const OpSpec& spec, size_t output) {
  const ParamSpec* p = spec.output_spec(static_cast<int>(output));
  return !p || p->optional || p->uses;
}

// Keeps only steps that some result needs, and within a step only outputs that are used, or that it cannot do without.
void trim(GradientProgram& program) {
  std::vector<bool> needed(program.slots.size(), false);
  for (const int s : result_slots(program)) needed[s] = true;
  std::vector<GradientProgram::Step> kept;
  for (auto it = program.steps.rbegin(); it != program.steps.rend(); ++it) {
    GradientProgram::Step& step = *it;
    if (std::ranges::none_of(step.outputs, [&](int out) { return out >= 0 && needed[out]; })) continue;
    for (size_t o = 0; o < step.outputs.size(); ++o)
      if (int& out = step.outputs[o]; out >= 0 && !needed[out] && may_be_absent(op_spec(step.type), o)) out = -1;
    for (const int in : step.inputs)
      if (in >= 0) needed[in] = true;
    kept.push_back(step);
  }
  std::reverse(kept.begin(), kept.end());
  program.steps = std::move(kept);
}

// Finds the forward values that are read. One that is passed for its shape alone (X of an FCGradient whose dW is not
// wanted) is not.
void mark_reads(GradientProgram& program, int inputs, int outputs) {
  program.reads_input.assign(inputs, false);
  program.reads_output.assign(outputs, false);
  auto mark = [&](int slot) {
    const GradientProgram::Slot& s = program.slots[slot];
    if (s.kind == SlotKind::input) program.reads_input[s.index] = true;
    if (s.kind == SlotKind::output) program.reads_output[s.index] = true;
  };
  for (const GradientProgram::Step& step : program.steps) {
    const std::vector<bool> reads = reads_of(step);
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.inputs[i] >= 0 && i < reads.size() && reads[i]) mark(step.inputs[i]);
  }
  for (const int s : result_slots(program)) mark(s);
}

void refuse(const OpSpec& spec, const OperatorDef& def, int input, const std::string& reason) {
  throw Error(fmt::format("{} has no gradient with respect to its input \"{}\"{}", spec.type, def.input(input), reason),
              "put a StopGradient before it, or leave that blob out of what is wanted");
}

void run_derivative(const OpSpec& spec, const DerivativeSpec& d, Formula& f, std::vector<Gradient>& results) {
  const int count = f.inputs();
  if (d.element_fn) {
    const auto [begin, end] = spec.input_range(spec.input_index(d.inputs[0]), count);
    for (int i = begin; i < end; ++i)
      if (f.wants_at(i)) results[i] = d.element_fn(f, i - begin);
    return;
  }
  const bool any = std::any_of(d.inputs.begin(), d.inputs.end(), [&](const auto& name) { return f.wants(name); });
  if (!any) return;
  const std::vector<Gradient> made = d.fn(f);
  assert(made.size() == d.inputs.size() && "a formula returns one gradient per input that it is for");
  for (size_t i = 0; i < made.size(); ++i) {
    const int at = spec.input_index(d.inputs[i]);
    if (at < count && f.wants_at(at)) results[at] = made[i];
  }
}

bool has_own_derivative(const OpSpec& spec, const std::string& input) {
  return std::ranges::any_of(
      spec.derivatives, [&](const DerivativeSpec& d) { return std::ranges::find(d.inputs, input) != d.inputs.end(); });
}

// The wanted inputs that the operator gives no derivative of. Inputs of a fixed integer type (labels, lengths) carry no
// gradient, and nobody asks for one by accident.
std::vector<bool> left_to_body(const OpSpec& spec, const std::vector<bool>& wanted) {
  std::vector<bool> left(wanted.size(), false);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const ParamSpec* p = spec.input_spec(static_cast<int>(i));
    const bool integer = p && !p->types.empty() && std::ranges::none_of(p->types, is_floating);
    left[i] = wanted[i] && !integer && !(p && (p->object || has_own_derivative(spec, p->name)));
  }
  return left;
}

void run_body(const OpSpec& spec, const OperatorDef& def, const void* args, const std::vector<bool>& wanted, Formula& f,
              std::vector<Gradient>& results) {
  const std::vector<bool> left = left_to_body(spec, wanted);
  const auto first = std::ranges::find(left, true);
  if (first == left.end()) return;
  if (!spec.composed) refuse(spec, def, static_cast<int>(first - left.begin()), "");
  const std::vector<Gradient> made = body_gradients(spec, def, args, f, left);
  for (size_t i = 0; i < made.size(); ++i)
    if (left[i]) results[i] = made[i];
}

}  // namespace

void finish_program(GradientProgram& program, int inputs, int outputs) {
  trim(program);
  mark_reads(program, inputs, outputs);
}

bool derives_by_body(const OpSpec& spec) {
  const std::vector<bool> left = left_to_body(spec, std::vector<bool>(spec.inputs.size(), true));
  return spec.composed && !spec.whole_derivative && std::ranges::find(left, true) != left.end();
}

GradientProgram record_gradient(const OpSpec& spec, const OperatorDef& def, const void* args, std::vector<bool> wanted,
                                std::vector<bool> present) {
  const int inputs = static_cast<int>(wanted.size());
  const int outputs = static_cast<int>(present.size());
  Formula f(spec, def, args, wanted, std::move(present));
  std::vector<Gradient> results(wanted.size());
  if (spec.gradient_rule == GradientRule::refuse) {
    for (int i = 0; i < inputs; ++i)
      if (wanted[i]) refuse(spec, def, i, ": " + spec.no_gradient_reason);
  } else if (spec.whole_derivative) {
    results = spec.whole_derivative(f);
  } else if (spec.gradient_rule != GradientRule::stop) {
    for (const DerivativeSpec& d : spec.derivatives) run_derivative(spec, d, f, results);
    run_body(spec, def, args, wanted, f, results);
  }
  f.program_.results = std::move(results);
  finish_program(f.program_, inputs, outputs);
  return std::move(f.program_);
}

GradientProgram record_body(const OpSpec& spec, const OperatorDef& def, const void* args) {
  assert(spec.composed && "only an operator with a body has one to record");
  const std::vector<bool> none(def.input_size(), false);
  Formula f(spec, def, args, none, std::vector<bool>(def.output_size(), false));
  const std::vector<Value> made = spec.composed(f);
  for (size_t o = 0; o < made.size() && o < static_cast<size_t>(def.output_size()); ++o)
    f.program_.results.emplace_back(def.output(static_cast<int>(o)).empty() ? Value() : made[o]);
  trim(f.program_);
  assert(std::ranges::all_of(f.program_.slots,
                             [](const GradientProgram::Slot& s) {
                               return s.kind == SlotKind::input || s.kind == SlotKind::temporary;
                             }) &&
         "a body reads inputs alone");
  return std::move(f.program_);
}

}  // namespace stepnet
