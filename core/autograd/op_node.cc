#include "core/autograd/op_node.h"

#include <algorithm>

#include "core/autograd/record.h"

namespace stepnet::autograd {
namespace {

using SlotKind = GradientProgram::SlotKind;

// A value of which only the type is read.
Variable shape_of(const TensorType& type) {
  Tensor t;
  t.set_type(type.dtype, type.shape);
  return Variable(std::move(t));
}

// A sum to a shape that is there already.
bool sums_nothing(const EagerOp& op, const std::vector<Variable>& inputs) {
  return op.spec().role == Role::sum_to && inputs.size() == 2 && inputs[0].shape() == inputs[1].shape();
}

}  // namespace

OpNode::OpNode(std::shared_ptr<const EagerOp> op, const EagerGradient& recorded, std::vector<bool> needs,
               std::vector<Edge> edges, std::vector<TensorType> inputs, std::vector<TensorType> outputs, Place place)
    : Node(std::move(edges), std::move(outputs), place),
      op_(std::move(op)),
      recorded_(&recorded),
      needs_(std::move(needs)),
      input_types_(std::move(inputs)) {}

std::string OpNode::name() const { return op_->type() + "Gradient"; }

void OpNode::save_input(int i, const Tensor& value) { saved_.push_back({i, SavedValue(value)}); }
void OpNode::save_output(int o, const Tensor& value) { saved_.push_back({op_->inputs() + o, SavedValue(value)}); }

SavedValue* OpNode::find(int place) {
  for (Saved& s : saved_)
    if (s.place == place) return &s.value;
  return nullptr;
}

Variable OpNode::read_input(int i) {
  const SavedValue* saved = find(i);
  return saved ? saved->unpack(edges()[i], *this, op_->input_name(i)) : Variable();
}

Variable OpNode::read_output(int o) {
  const SavedValue* saved = find(op_->inputs() + o);
  if (!saved) return {};
  const Edge self{shared_from_this(), o};
  return saved->unpack(is_floating(outputs()[o].dtype) ? self : Edge{}, *this, op_->output_name(o));
}

Variable OpNode::slot_value(const GradientProgram& program, const GradientProgram::Slot& slot,
                            const Gradients& gradients) {
  if (slot.kind == SlotKind::output_gradient) return gradients[slot.index].dense;
  if (slot.kind == SlotKind::temporary) return {};
  const bool is_input = slot.kind == SlotKind::input;
  const bool reads = is_input ? program.reads_input[slot.index] : program.reads_output[slot.index];
  if (!reads) return shape_of(is_input ? input_types_[slot.index] : outputs()[slot.index]);
  return is_input ? read_input(slot.index) : read_output(slot.index);
}

std::vector<Variable> OpNode::run_steps(const EagerGradient& gradient, Gradients& gradients) {
  const GradientProgram& program = gradient.program;
  std::vector<Variable> slots;
  slots.reserve(program.slots.size());
  {
    const std::lock_guard lock(lock_);
    for (const GradientProgram::Slot& slot : program.slots) slots.push_back(slot_value(program, slot, gradients));
  }
  gradients.clear();  // so that a step is the last to hold them
  std::vector<Variable> inputs;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const GradientProgram::Step& step = program.steps[s];
    inputs.clear();
    for (const int in : step.inputs) inputs.push_back(in < 0 ? Variable() : slots[in]);
    for (const int in : step.inputs)
      if (in >= 0 && gradient.last_use[in] == static_cast<int>(s)) slots[in] = {};
    if (sums_nothing(*gradient.steps[s], inputs)) {
      slots[step.outputs[0]] = inputs[0];
      continue;
    }
    std::vector<Variable> made = run(*gradient.steps[s], inputs, place());
    for (size_t o = 0; o < made.size(); ++o)
      if (step.outputs[o] >= 0) slots[step.outputs[o]] = std::move(made[o]);
  }
  return slots;
}

Gradients OpNode::apply(Gradients gradients, const NodeRun& run) {
  if (released_) fail_released();
  std::vector<bool> present;
  present.reserve(gradients.size());
  bool any = false, all = true;
  for (size_t o = 0; o < gradients.size(); ++o) {
    present.push_back(gradients[o].defined());
    any = any || present.back();
    all = all && (present.back() || !op_->wants_output(static_cast<int>(o)));
  }
  Gradients results(edges().size());
  if (!any) return results;
  const EagerGradient& gradient = all && run.wanted == needs_ ? *recorded_ : op_->gradient(run.wanted, present);
  std::vector<Variable> slots = run_steps(gradient, gradients);
  for (size_t i = 0; i < results.size(); ++i) {
    const Gradient& g = gradient.program.results[i];
    if (g.dense.defined()) results[i].dense = slots[g.dense.slot];
    if (g.is_sparse()) results[i] = VariableGradient::sparse(slots[g.indices.slot], slots[g.values.slot]);
  }
  return results;
}

void OpNode::release() {
  const std::lock_guard lock(lock_);
  released_ = !saved_.empty();
  for (Saved& s : saved_) s.value.release();
}

}  // namespace stepnet::autograd
