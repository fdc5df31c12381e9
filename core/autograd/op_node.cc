#include "core/autograd/op_node.h"

#include <algorithm>

#include "core/autograd/capture.h"
#include "core/autograd/run_steps.h"
#include "core/autograd/variable_state.h"
#include "core/tensor/small_vector.h"

namespace stepnet::autograd {
namespace {

using SlotKind = GradientProgram::SlotKind;
constexpr size_t kFew = 4;

}  // namespace

OpNode::OpNode(std::shared_ptr<const EagerOp> op, const EagerGradient& recorded, Flags needs, std::vector<Edge> edges,
               std::vector<TensorType> inputs, std::vector<TensorType> outputs, Place place)
    : Node(std::move(edges), std::move(outputs), place),
      op_(std::move(op)),
      recorded_(&recorded),
      needs_(std::move(needs)),
      input_types_(std::move(inputs)) {}

std::string OpNode::name() const { return op_->type() + "Gradient"; }

void OpNode::save_tangents(std::span<const std::shared_ptr<const Tangents>> inputs, std::span<const Variable> outputs) {
  const std::lock_guard lock(lock_);
  for (Saved& s : saved_) {
    if (s.place < op_->inputs())
      s.value.set_tangents(inputs[s.place]);
    else if (const Variable& v = outputs[s.place - op_->inputs()]; v.defined())
      s.value.set_tangents(v.state()->tangents);
  }
}

void OpNode::save(std::span<const Tensor* const> inputs, std::span<const Tensor> outputs) {
  saved_.reserve(recorded_->saved_inputs.size() + recorded_->saved_outputs.size());
  for (const int i : recorded_->saved_inputs)
    if (inputs[i]) saved_.push_back({i, SavedValue(*inputs[i], this)});
  for (const int o : recorded_->saved_outputs)
    if (outputs[o].defined()) saved_.push_back({op_->inputs() + o, SavedValue(outputs[o], this)});
}

void OpNode::note_types(TapeCapture& capture, std::span<const Tensor* const> inputs,
                        std::span<const Tensor> outputs) const {
  // An input that was overwritten is no longer what it was.
  const auto name = [&](const Tensor* value, const TensorType& type) -> std::string {
    const std::string* known = value && value->shape() == type.shape ? capture.known(*value) : nullptr;
    return known ? *known : "";
  };
  std::vector<std::string> input_names, output_names;
  for (size_t i = 0; i < inputs.size(); ++i) input_names.push_back(name(inputs[i], input_types_[i]));
  for (size_t o = 0; o < outputs.size(); ++o) output_names.push_back(name(&outputs[o], this->outputs()[o]));
  capture.note_types(shared_from_this(), input_types_, input_names);
  capture.note_types(shared_from_this(), this->outputs(), output_names);
}

SavedValue* OpNode::find(int place) {
  for (Saved& s : saved_)
    if (s.place == place) return &s.value;
  return nullptr;
}

// A hook that unpacks may run a whole pass, which may come here on another thread: it runs without the lock.
Variable OpNode::read(int place, const Edge& edge, const std::string& what, std::unique_lock<std::mutex>& lock) {
  const SavedValue* saved = find(place);
  if (!saved) return {};
  if (!saved->packed()) return saved->unpack(edge, *this, what);
  const SavedValue packed = *saved;
  lock.unlock();
  Variable value = packed.unpack(edge, *this, what);
  lock.lock();
  return value;
}

Variable OpNode::read_input(int i, std::unique_lock<std::mutex>& lock) {
  return read(i, edges()[i], op_->input_name(i), lock);
}

Variable OpNode::read_output(int o, std::unique_lock<std::mutex>& lock) {
  const Edge self{shared_from_this(), o};
  const int place = op_->inputs() + o;
  return read(place, is_floating(outputs()[o].dtype) ? self : Edge{}, op_->output_name(o), lock);
}

Variable OpNode::read_input(int i) {
  std::unique_lock lock(lock_);
  return read_input(i, lock);
}

Variable OpNode::read_output(int o) {
  std::unique_lock lock(lock_);
  return read_output(o, lock);
}

Variable OpNode::slot_value(const GradientProgram& program, const GradientProgram::Slot& slot,
                            const Gradients& gradients, std::unique_lock<std::mutex>& lock) {
  if (slot.kind == SlotKind::output_gradient) return gradients[slot.index].dense;
  if (slot.kind == SlotKind::temporary) return {};
  const bool is_input = slot.kind == SlotKind::input;
  const bool reads = is_input ? program.reads_input[slot.index] : program.reads_output[slot.index];
  if (!reads) return type_only(is_input ? input_types_[slot.index] : outputs()[slot.index]);
  return is_input ? read_input(slot.index, lock) : read_output(slot.index, lock);
}

// What was recorded without the outputs serves the formulas that compute them again.
const EagerGradient& OpNode::derivative(const Flags& wanted, const Flags& present) const {
  if (wanted == needs_ && present == op_->wanted_outputs()) return *recorded_;
  const EagerGradient& gradient = op_->gradient(wanted, present);
  return gradient.from_inputs && recorded_->saved_outputs.empty() ? *gradient.from_inputs : gradient;
}

Gradients OpNode::apply(Gradients gradients, const NodeRun& run) {
  Flags present(gradients.size());
  bool any = false;
  for (size_t o = 0; o < gradients.size(); ++o)
    if (gradients[o].defined()) {
      present.set(o);
      any = true;
    }
  Gradients results(edges().size());
  if (!any) return results;
  const Flags wanted(run.wanted);
  const EagerGradient& gradient = derivative(wanted, present);
  const GradientProgram& program = gradient.program;
  InlineVector<Variable, 2 * kFew> slots(program.slots.size());
  std::unique_lock lock(lock_);
  if (released_) fail_released();
  for (size_t s = 0; s < slots.size(); ++s) slots[s] = slot_value(program, program.slots[s], gradients, lock);
  lock.unlock();
  gradients.clear();  // so that the steps hold them alone
  run_steps(gradient, slots, place());
  for (size_t i = 0; i < results.size(); ++i) {
    const Gradient& g = program.results[i];
    if (g.dense.defined()) results[i].dense = slots[g.dense.slot];
    if (g.is_sparse()) results[i] = VariableGradient::sparse(slots[g.indices.slot], slots[g.values.slot]);
  }
  return results;
}

Node::Flow OpNode::flow(size_t i) const {
  const Gradient& g = recorded_->program.results[i];
  return g.defined() ? Flow::computed : g.is_zero ? Flow::zero : Flow::nothing;
}

void OpNode::release() {
  const std::lock_guard lock(lock_);
  released_ = !saved_.empty();
  for (Saved& s : saved_) s.value.release();
}

}  // namespace stepnet::autograd
