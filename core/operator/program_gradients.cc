#include "core/operator/program_gradients.h"

#include <algorithm>
#include <cassert>

namespace stepnet {
namespace {

using SlotKind = GradientProgram::SlotKind;

bool any(const std::vector<bool>& marks) { return std::ranges::find(marks, true) != marks.end(); }

// A program run backwards inside a formula.
class ReverseProgram {
 public:
  // `given`: what the program's slots that are no temporaries are in the formula; `varies`: per slot, whether it is one
  // of those, and its gradient is wanted.
  ReverseProgram(GradientProgram program, Formula& f, const std::function<Value(const GradientProgram::Slot&)>& given,
                 std::vector<bool> varies)
      : f_(f), body_(std::move(program)), varies_(std::move(varies)) {
    keep_all_outputs();
    values_ = f.insert(body_, given);
    terms_.resize(body_.slots.size());
    zero_.resize(body_.slots.size());
    mark_varying();
  }

  void add_gradient(int slot, Value gradient) { terms_[slot].push_back(gradient); }
  void run() {
    for (auto step = body_.steps.rbegin(); step != body_.steps.rend(); ++step) go_back(*step);
  }
  // Of a slot that varies.
  Gradient gradient(int slot) {
    if (!terms_[slot].empty()) return total(slot);
    return zero_[slot] ? Gradient::zero() : Gradient::none();
  }

 private:
  // Derivatives may read outputs that the body itself does not; those that none reads are trimmed in the end.
  void keep_all_outputs() {
    for (GradientProgram::Step& step : body_.steps)
      for (int& out : step.outputs)
        if (out < 0) {
          out = static_cast<int>(body_.slots.size());
          body_.slots.push_back({SlotKind::temporary});
        }
  }

  // Marks the slots that depend on what is wanted.
  void mark_varying() {
    varies_.resize(body_.slots.size());
    for (const GradientProgram::Step& step : body_.steps) {
      if (op_spec(step.type).gradient_rule == GradientRule::stop) continue;
      const bool varies = std::ranges::any_of(step.inputs, [&](int in) { return in >= 0 && varies_[in]; });
      for (const int out : step.outputs) varies_[out] = varies;
    }
  }

  // The sum of what has come to a slot of the body.
  Value total(int slot) {
    std::vector<Value>& terms = terms_[slot];
    if (terms.size() > 1) terms = {f_.op(op_with_role(Role::sum).type, terms)};
    return terms[0];
  }

  void go_back(const GradientProgram::Step& step) {
    std::vector<bool> wanted, present;
    for (const int in : step.inputs) wanted.push_back(in >= 0 && varies_[in]);
    for (const int out : step.outputs) present.push_back(!terms_[out].empty());
    if (!any(wanted)) return;
    if (!any(present)) return pass_zeros_on(step, wanted);
    const OpSpec& spec = op_spec(step.type);
    const OperatorDef def = call_of(step, [](int slot) { return slot < 0 ? "" : fmt::format("value{}", slot); });
    const GradientProgram gradient = record_gradient(spec, def, parse_args(spec, def).get(), wanted, present);
    const std::vector<Value> here = f_.insert(gradient, [&](const GradientProgram::Slot& s) {
      if (s.kind == SlotKind::input) return values_[step.inputs[s.index]];
      const int out = step.outputs[s.index];
      return s.kind == SlotKind::output ? values_[out] : shaped_like(total(out), values_[out]);
    });
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const Gradient& g = gradient.results[i];
      if (wanted[i] && g.defined()) terms_[step.inputs[i]].push_back(dense(g, here, values_[step.inputs[i]]));
      if (wanted[i] && g.is_zero) zero_[step.inputs[i]] = true;
    }
  }

  void pass_zeros_on(const GradientProgram::Step& step, const std::vector<bool>& wanted) {
    if (std::ranges::none_of(step.outputs, [&](int out) { return zero_[out]; })) return;
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (wanted[i]) zero_[step.inputs[i]] = true;
  }

  // Says so of a gradient whose value has the shape of an input, which is there in any case.
  Value shaped_like(Value gradient, Value value) {
    const std::vector<GradientProgram::Slot>& slots = f_.program().slots;
    int like = value.slot;
    while (slots[like].like >= 0) like = slots[like].like;
    return slots[like].kind == SlotKind::input ? f_.same_shape(gradient, {like}) : gradient;
  }

  Value dense(const Gradient& g, const std::vector<Value>& here, Value like) {
    if (!g.is_sparse()) return here[g.dense.slot];
    return f_.op(op_with_role(Role::rows_to_dense).type, {here[g.indices.slot], here[g.values.slot], like});
  }

  Formula& f_;
  GradientProgram body_;
  std::vector<Value> values_;              // by slot of the body: what it is in the formula
  std::vector<bool> varies_;               // by slot
  std::vector<std::vector<Value>> terms_;  // by slot: the terms of its gradient
  std::vector<bool> zero_;                 // by slot: a term is known to be zero
};

}  // namespace

OperatorDef call_of(const GradientProgram::Step& step, const std::function<std::string(int)>& name) {
  OperatorDef def;
  def.set_type(step.type);
  def.set_is_gradient_op(true);  // which may leave inputs out
  for (const int in : step.inputs) def.add_input(name(in));
  for (const int out : step.outputs) def.add_output(name(out));
  for (const Argument& arg : step.args) *def.add_arg() = arg;
  return def;
}

std::vector<Gradient> body_gradients(const OpSpec& spec, const OperatorDef& def, const void* args, Formula& f,
                                     const std::vector<bool>& wanted, size_t first_output) {
  GradientProgram body = record_body(spec, def, args);
  const std::vector<GradientProgram::Slot> slots = body.slots;
  const std::vector<Gradient> made = body.results;
  std::vector<bool> varies;
  for (const GradientProgram::Slot& s : slots) varies.push_back(s.kind == SlotKind::input && wanted[s.index]);
  ReverseProgram reverse(
      std::move(body), f, [&f](const GradientProgram::Slot& s) { return f.x_at(s.index); }, varies);
  for (size_t o = first_output; o < made.size(); ++o)
    if (const Value v = made[o].dense; v.defined() && f.dy_at(static_cast<int>(o)).defined())
      reverse.add_gradient(v.slot, f.dy_at(static_cast<int>(o)));
  reverse.run();
  std::vector<Gradient> results(f.inputs());
  for (size_t s = 0; s < slots.size(); ++s)
    if (varies[s]) results[slots[s].index] = reverse.gradient(static_cast<int>(s));
  return results;
}

namespace {

// Gradients that are sparse rows, as dense ones.
void make_dense(GradientProgram& program) {
  for (size_t i = 0; i < program.results.size(); ++i) {
    Gradient& g = program.results[i];
    if (!g.is_sparse()) continue;
    auto like = std::ranges::find_if(program.slots, [&](const GradientProgram::Slot& s) {
      return s.kind == SlotKind::input && s.index == static_cast<int>(i);
    });
    if (like == program.slots.end()) like = program.slots.insert(like, {SlotKind::input, static_cast<int>(i)});
    const auto shape = static_cast<int>(like - program.slots.begin());
    const auto made = static_cast<int>(program.slots.size());
    program.slots.push_back({SlotKind::temporary});
    program.steps.push_back({.type = op_with_role(Role::rows_to_dense).type,
                             .args = {},
                             .inputs = {g.indices.slot, g.values.slot, shape},
                             .outputs = {made},
                             .reads = {}});
    g = Value{made};
  }
}

// True if the step's input `i` counts for more than its shape and its device: its formula says so of one that does not.
bool has_influence(const GradientProgram::Step& step, size_t i) {
  const OpSpec& spec = op_spec(step.type);
  if (spec.gradient_rule != GradientRule::undefined || spec.whole_derivative) return true;
  std::vector<bool> wanted(step.inputs.size()), present;
  wanted[i] = true;
  for (const int out : step.outputs) present.push_back(out >= 0);
  const OperatorDef def = call_of(step, [](int slot) { return slot < 0 ? "" : fmt::format("value{}", slot); });
  try {
    const Gradient g = record_gradient(spec, def, parse_args(spec, def).get(), wanted, present).results[i];
    return g.defined() || g.is_zero;
  } catch (const Error&) {  // it has no derivative
    return true;
  }
}

// True if a result depends on the value of a gradient that is given to the operator's derivative.
bool reads_output_gradient(const GradientProgram& program) {
  std::vector<bool> needed(program.slots.size());
  for (const Gradient& g : program.results)
    if (g.defined()) needed[g.dense.slot] = true;
  for (auto step = program.steps.rbegin(); step != program.steps.rend(); ++step) {
    if (std::ranges::none_of(step->outputs, [&](int out) { return out >= 0 && needed[out]; })) continue;
    GradientProgram::Step of_needed = *step;
    for (int& out : of_needed.outputs)
      if (out >= 0 && !needed[out]) out = -1;
    const std::vector<bool> reads = reads_of(of_needed);
    for (size_t i = 0; i < step->inputs.size(); ++i)
      if (step->inputs[i] >= 0 && i < reads.size() && reads[i] && has_influence(*step, i))
        needed[step->inputs[i]] = true;
  }
  for (size_t s = 0; s < needed.size(); ++s)
    if (needed[s] && program.slots[s].kind == SlotKind::output_gradient) return true;
  return false;
}

}  // namespace

bool may_move(const OpSpec& spec, int output) {
  const ParamSpec* p = spec.output_spec(output);
  return !p || p->types.empty() || std::ranges::any_of(p->types, is_floating);
}

GradientProgram record_tangents(const OpSpec& spec, const OperatorDef& def, const void* args,
                                const std::vector<bool>& moved, const std::vector<bool>& needed) {
  const auto inputs = static_cast<int>(moved.size()), outputs = static_cast<int>(needed.size());
  GradientProgram derivative = record_gradient(spec, def, args, moved, needed);
  make_dense(derivative);
  OperatorDef doubled = def;
  for (int i = 0; i < inputs; ++i) doubled.add_input(moved[i] ? fmt::format("tangent{}", i) : "");
  Formula f(spec, doubled, args, std::vector<bool>(2 * moved.size(), false), needed);
  std::vector<bool> varies;
  std::vector<int> given(needed.size(), -1);  // by output: the slot of its gradient
  for (size_t s = 0; s < derivative.slots.size(); ++s) {
    varies.push_back(derivative.slots[s].kind == SlotKind::output_gradient);
    if (varies.back()) given[derivative.slots[s].index] = static_cast<int>(s);
  }
  const std::vector<Gradient> gradients = derivative.results;
  ReverseProgram reverse(
      std::move(derivative), f,
      [&f](const GradientProgram::Slot& s) {
        if (s.kind == SlotKind::input) return f.x_at(s.index);
        return s.kind == SlotKind::output ? f.y_at(s.index) : f.dy_at(s.index);
      },
      std::move(varies));
  for (int i = 0; i < inputs; ++i)
    if (moved[i] && gradients[i].defined()) reverse.add_gradient(gradients[i].dense.slot, f.x_at(inputs + i));
  reverse.run();
  std::vector<Gradient> tangents(needed.size());
  for (size_t o = 0; o < needed.size(); ++o)
    if (given[o] >= 0) tangents[o] = reverse.gradient(given[o]);
  GradientProgram program = f.program();
  program.results = std::move(tangents);
  finish_program(program, 2 * inputs, outputs);
  require(!reads_output_gradient(program),
          "{} has no forward mode: what its derivative computes from a gradient is not linear in it", spec.type);
  return program;
}

}  // namespace stepnet
