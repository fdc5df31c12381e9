#include "core/autograd/gradient_buffer.h"

#include <limits>

#include "core/autograd/capture.h"
#include "core/autograd/tape_tangents.h"
#include "core/autograd/variable_state.h"
#include "stepnet/record.h"

namespace stepnet::autograd {
namespace {

using Signature = EagerOp::Signature;

Signature signature(Role role, size_t inputs, size_t outputs, std::vector<Argument> args = {},
                    std::vector<int> in_place = {}) {
  return {op_with_role(role).type, std::vector<bool>(inputs, true), std::vector<bool>(outputs, true), std::move(args),
          std::move(in_place)};
}

bool holds_alone(const Variable& v) {
  return v.shared_state().use_count() == 1 && !v.requires_grad() && v.value().storage().use_count() == 1;
}

Variable sum(const Variable& a, const Variable& b) {
  static const std::shared_ptr<const EagerOp> op = EagerOp::get(signature(Role::sum, 2, 1));
  const Variable terms[] = {a, b};
  count(TapeEvent::added_apart);
  return run1(*op, terms);
}

// To the bytes of `a`, whoever sees them. Nothing is recorded.
void add_to(Variable& a, const Variable& b) {
  before_write(a.value());
  static const std::shared_ptr<const EagerOp> op = EagerOp::get(signature(Role::sum, 2, 1, {}, {0}));
  Tensor& target = a.state()->value;
  const Tensor* in[] = {&target, &b.value()};
  Tensor* out[] = {&target};
  RunContext context;
  run_captured(op->bound_on(target.device()), in, out, context);
  count(TapeEvent::added_in_place);
}

// The same of rows, of which no dense tensor is made.
void add_rows_to(Variable& a, const VariableGradient& rows) {
  before_write(a.value());
  static const std::shared_ptr<const EagerOp> op =
      EagerOp::get(signature(Role::add_rows, 3, 1, {make_arg("axis", 0)}, {0}));
  Tensor& target = a.state()->value;
  const Tensor indices = rows.indices.value().reshaped({rows.indices.shape().size()});
  const Tensor values = rows.values.value().reshaped(target.shape().with(0, indices.size()));
  const Tensor* in[] = {&target, &indices, &values};
  Tensor* out[] = {&target};
  RunContext context;
  run_captured(op->bound_on(target.device()), in, out, context);
  count(TapeEvent::added_in_place);
}

// Neither is recorded. In a copy of the dense tensor, unless only the caller holds it.
Variable add_rows(Variable dense, const VariableGradient& rows) {
  if (!holds_alone(dense)) {
    dense = copied(dense);
    count(TapeEvent::added_apart);
  }
  add_rows_to(dense, rows);
  return dense;
}

Variable concat(const Variable& a, const Variable& b) {
  static const std::shared_ptr<const EagerOp> op = EagerOp::get(signature(Role::concat, 2, 2, {make_arg("axis", 0)}));
  const Variable parts[] = {a, b};
  return std::move(run(*op, parts)[0]);
}

Variable sum_to(const Variable& v, const TensorType& type) {
  static const std::shared_ptr<const EagerOp> op =
      EagerOp::get(signature(Role::sum_to, 2, 1, {make_arg("broadcast", 1)}));
  const Variable inputs[] = {v, type_only(type)};
  return run1(*op, inputs);
}

// Whether a tensor of `from` may be broadcast to `to`: dimensions from the end are equal or 1.
bool broadcasts(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int i = 1; i <= from.rank(); ++i)
    if (from.at(-i) != to.at(-i) && from.at(-i) != 1) return false;
  return true;
}

// Rows of a tensor of that type, with one index each.
bool rows_fit(const VariableGradient& g, const TensorType& type) {
  const Shape &rows = g.values.shape(), &like = type.shape;
  const int lead = g.indices.shape().rank();
  return g.values.dtype() == type.dtype && like.rank() > 0 && rows.rank() == lead + like.rank() - 1 &&
         rows.from(lead) == like.from(1);
}

std::string name_of(const Node* node) { return node ? node->name() : ""; }

}  // namespace

Variable copied(const Variable& v) {
  if (!is_recorded({&v, 1}) && !moves({&v, 1})) return Variable(clone_captured(v.value()));
  static const std::shared_ptr<const EagerOp> op = EagerOp::get(signature(Role::copy, 1, 1));
  return run1(*op, {&v, 1});
}

bool is_only_holder(const VariableGradient& g) {
  return g.is_sparse() ? holds_alone(g.indices) && holds_alone(g.values) : holds_alone(g.dense);
}

VariableGradient add_gradients(VariableGradient a, VariableGradient b, const TensorType& type) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  if (a.is_sparse() && b.is_sparse()) {
    count(TapeEvent::added_apart);
    return VariableGradient::sparse(concat(a.indices, b.indices), concat(a.values, b.values));
  }
  if (tape_state().recording || moves(a) || moves(b)) return sum(make_dense(a, type), make_dense(b, type));
  if (a.is_sparse()) return add_rows(std::move(b.dense), a);
  if (b.is_sparse()) return add_rows(std::move(a.dense), b);
  if (!is_only_holder(a) && is_only_holder(b)) std::swap(a, b);
  if (!is_only_holder(a)) return sum(a.dense, b.dense);
  add_to(a.dense, b.dense);
  return a;
}

void add_in_place(Variable& a, VariableGradient b) {
  if (moves({&a, 1}) || moves(b)) {
    const NoGrad no_grad;
    const Variable terms[] = {a, make_dense(b, TensorType::of(a.dtype(), a.shape()))};
    static const std::shared_ptr<const EagerOp> op = EagerOp::get(signature(Role::sum, 2, 1, {}, {0}));
    run1(*op, terms);
    return;
  }
  if (b.is_sparse()) return add_rows_to(a, b);
  add_to(a, b.dense);
}

Variable make_dense(const VariableGradient& gradient, const TensorType& type) {
  if (!gradient.is_sparse()) return gradient.dense;
  static const std::shared_ptr<const EagerOp> op = EagerOp::get(signature(Role::rows_to_dense, 3, 1));
  const Variable inputs[] = {gradient.indices, gradient.values, type_only(type)};
  return run1(*op, inputs);
}

Variable filled(const TensorType& type, Device device, float value) {
  const OnDevice scope(device);
  const auto op = EagerOp::get(signature(Role::fill_like, 1, 1, {make_arg("value", value)}));
  const Variable inputs[] = {type_only(type)};
  return run1(*op, inputs);
}

VariableGradient checked_gradient(VariableGradient g, const TensorType& type, std::string_view what, const Node* node) {
  if (!g.defined()) return g;
  if (g.is_sparse()) {
    if (!rows_fit(g, type))
      fail("{}{} is of {}, but its gradient's rows are {}", what, name_of(node), type, g.values.value());
    return g;
  }
  const Tensor& value = g.dense.value();
  if (value.dtype() == type.dtype && value.shape() == type.shape) return g;
  if (value.dtype() != type.dtype || !broadcasts(type.shape, value.shape()))
    fail("{}{} is {}, but its gradient is {}", what, name_of(node), type, value);
  return sum_to(g.dense, type);
}

namespace {

// The first gradient: taken over, or copied if somebody else sees it.
VariableGradient first_gradient(VariableGradient g) {
  if (is_only_holder(g)) {
    count(TapeEvent::gradient_moved);
    return g;
  }
  count(TapeEvent::gradient_copied);
  return g.is_sparse() ? VariableGradient::sparse(copied(g.indices), copied(g.values)) : copied(g.dense);
}

}  // namespace

AccumulateGrad::AccumulateGrad(const Variable& leaf)
    : Node({}, {TensorType::of(leaf.dtype(), leaf.shape())}, {}),
      leaf_(leaf.shared_state()),
      hooks_(leaf.state()->make_gradient().leaf_hooks()) {
  set_sequence(std::numeric_limits<uint64_t>::max());
}

std::vector<GradientHook> AccumulateGrad::output_hooks(int) const { return hooks_->of_gradient.all(); }

Gradients AccumulateGrad::apply(Gradients gradients, const NodeRun& run) {
  Variable variable = leaf();
  // It may be gone, or no leaf any more.
  if (!gradients[0].defined() || !variable.defined() || !variable.state()->requires_grad) return {};
  VariableGradient g = std::move(gradients[0]);
  gradients.clear();
  accumulate_gradient(variable, std::move(g), run.recording);
  const NoGrad no_grad;
  for (const auto& hook : hooks_->after.all()) hook(variable);
  return {};
}

Variable leaf_of(const Node& node) {
  const auto* accumulate = dynamic_cast<const AccumulateGrad*>(&node);
  return accumulate ? accumulate->leaf() : Variable();
}

Device device_of_output(const Node& node) {
  if (node.stream()) return node.stream()->device;
  const Variable leaf = leaf_of(node);
  return leaf.defined() ? leaf.value().device() : Device{};
}

void accumulate_gradient(const Variable& variable, VariableGradient g, bool recording) {
  const Tensor& value = variable.value();
  GradientState& s = variable.state()->make_gradient();
  const std::lock_guard lock(s.lock);
  if (TapeCapture* capture = tape_state().capture) capture->accumulated(variable);
  if (!s.grad.defined()) {
    s.grad = first_gradient(std::move(g));
  } else if (recording || s.grad.is_sparse() || s.grad.dense.requires_grad()) {
    VariableGradient before = s.grad;  // which keeps its values for whoever has taken them
    s.grad = add_gradients(std::move(before), std::move(g), TensorType::of(value.dtype(), value.shape()));
  } else {
    add_in_place(s.grad.dense, std::move(g));
  }
}

}  // namespace stepnet::autograd
