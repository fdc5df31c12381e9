#include "core/operator/body_gradient.h"

#include <algorithm>
#include <cassert>

namespace stepnet {
namespace {

using SlotKind = GradientProgram::SlotKind;

bool any(const std::vector<bool>& marks) { return std::ranges::find(marks, true) != marks.end(); }

class BodyGradients {
 public:
  BodyGradients(GradientProgram body, Formula& f, const std::vector<bool>& wanted) : f_(f), body_(std::move(body)) {
    keep_all_outputs();
    values_ = f.insert(body_, [&f](const GradientProgram::Slot& s) { return f.x_at(s.index); });
    given_.resize(body_.slots.size());
    mark_varying(wanted);
  }

  std::vector<Gradient> run() {
    for (size_t o = 0; o < body_.results.size(); ++o)
      if (const Value v = body_.results[o].dense; v.defined() && f_.dy_at(static_cast<int>(o)).defined())
        given_[v.slot].push_back(f_.dy_at(static_cast<int>(o)));
    for (auto step = body_.steps.rbegin(); step != body_.steps.rend(); ++step) go_back(*step);
    std::vector<Gradient> results(f_.inputs());
    for (size_t s = 0; s < body_.slots.size(); ++s)
      if (body_.slots[s].kind == SlotKind::input && varies_[s] && !given_[s].empty())
        results[body_.slots[s].index] = total(static_cast<int>(s));
    return results;
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
  void mark_varying(const std::vector<bool>& wanted) {
    for (const GradientProgram::Slot& s : body_.slots) varies_.push_back(s.kind == SlotKind::input && wanted[s.index]);
    for (const GradientProgram::Step& step : body_.steps) {
      if (op_spec(step.type).gradient_rule == GradientRule::stop) continue;
      const bool varies = std::ranges::any_of(step.inputs, [&](int in) { return in >= 0 && varies_[in]; });
      for (const int out : step.outputs) varies_[out] = varies;
    }
  }

  // The sum of what has come to a slot of the body.
  Value total(int slot) {
    std::vector<Value>& terms = given_[slot];
    if (terms.size() > 1) terms = {f_.op(op_with_role(Role::sum).type, terms)};
    return terms[0];
  }

  void go_back(const GradientProgram::Step& step) {
    std::vector<bool> wanted, present;
    for (const int in : step.inputs) wanted.push_back(in >= 0 && varies_[in]);
    for (const int out : step.outputs) present.push_back(!given_[out].empty());
    if (!any(wanted) || !any(present)) return;
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
      if (wanted[i] && g.defined()) given_[step.inputs[i]].push_back(dense(g, here, values_[step.inputs[i]]));
    }
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
  std::vector<std::vector<Value>> given_;  // by slot: the terms of its gradient
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
                                     const std::vector<bool>& wanted) {
  return BodyGradients(record_body(spec, def, args), f, wanted).run();
}

}  // namespace stepnet
