#include "core/autograd/variable.h"

#include "core/autograd/accumulate_grad.h"
#include "core/autograd/record.h"
#include "core/autograd/variable_state.h"

namespace stepnet::autograd {
namespace {

VariableState& state_of(const Variable& variable) {
  require(variable.defined(), "the variable is undefined");
  return *variable.state();
}

void check_floating(const Tensor& value) {
  if (is_floating(value.dtype())) return;
  throw Error(fmt::format("a variable of type {} cannot require a gradient", value.str()),
              "only floating-point elements have gradients");
}

}  // namespace

Variable::Variable(Tensor value, bool requires_grad) : state_(std::make_shared<VariableState>()) {
  require(value.defined(), "a variable needs a tensor");
  state_->value = std::move(value);
  if (requires_grad) set_requires_grad();
}

const Tensor& Variable::value() const { return state_of(*this).value; }
Tensor& Variable::unchecked_value() { return state_of(*this).value; }
std::string Variable::str() const { return defined() ? value().str() : "undefined"; }
bool Variable::requires_grad() const { return state_ && (state_->requires_grad || state_->grad_fn); }
bool Variable::is_leaf() const { return !state_of(*this).grad_fn; }
bool Variable::is_view() const { return state_of(*this).is_view; }
const std::shared_ptr<Node>& Variable::grad_fn() const { return state_of(*this).grad_fn; }
int Variable::output_index() const { return state_of(*this).output_index; }

Variable& Variable::set_requires_grad(bool requires_grad) {
  VariableState& s = state_of(*this);
  if (requires_grad) check_floating(s.value);
  if (s.grad_fn) {
    if (requires_grad) return *this;
    throw Error("an interior variable requires a gradient, as what it was computed from does", "use detach()");
  }
  s.requires_grad = requires_grad;
  if (requires_grad) s.make_gradient();
  if (s.gradient) s.gradient->mark = ParameterMark(requires_grad ? s.value.storage().get() : nullptr);
  return *this;
}

Edge Variable::gradient_edge() const {
  if (!state_) return {};
  if (state_->grad_fn) return {state_->grad_fn, state_->output_index};
  if (!state_->requires_grad) return {};
  GradientState& gradient = *state_->gradient;
  const std::lock_guard lock(gradient.lock);
  std::shared_ptr<Node> node = gradient.accumulator.lock();
  if (!node) {
    node = std::make_shared<AccumulateGrad>(*this);
    gradient.accumulator = node;
  }
  return {std::move(node), 0};
}

const VariableGradient& Variable::grad() const {
  static const VariableGradient none;
  const VariableState& s = state_of(*this);
  return s.gradient ? s.gradient->grad : none;
}

void Variable::set_grad(VariableGradient gradient) {
  VariableState& s = state_of(*this);
  if (gradient.dense.defined())
    require(gradient.value().dtype() == s.value.dtype() && gradient.value().shape() == s.value.shape(),
            "the gradient of {} cannot be {}", s.value, gradient.value());
  s.make_gradient().grad = std::move(gradient);
}

void Variable::clear_grad() {
  if (const auto& gradient = state_of(*this).gradient) gradient->grad = {};
}

void Variable::retain_grad() {
  VariableState& s = state_of(*this);
  require(requires_grad(), "a variable that requires no gradient cannot retain it");
  if (!s.grad_fn) return;
  s.retains_grad = true;
  s.make_gradient();
  s.grad_fn->hooks().retained[s.output_index] = state_;
}

HookHandle Variable::register_hook(GradientHook hook) const {
  VariableState& s = state_of(*this);
  require(requires_grad(), "a variable that requires no gradient cannot have a hook on it");
  if (s.grad_fn) return s.grad_fn->register_output_hook(s.output_index, std::move(hook));
  const uint64_t id = s.gradient->leaf_hooks()->of_gradient.add(std::move(hook));
  return HookHandle([state = std::weak_ptr(state_), id] {
    if (const auto s = state.lock()) s->gradient->leaf_hooks()->of_gradient.remove(id);
  });
}

HookHandle Variable::register_post_accumulate_hook(std::function<void(Variable&)> hook) const {
  VariableState& s = state_of(*this);
  require(s.requires_grad, "only a leaf that requires a gradient can have a hook after its accumulation");
  const uint64_t id = s.gradient->leaf_hooks()->after.add(std::move(hook));
  return HookHandle([state = std::weak_ptr(state_), id] {
    if (const auto s = state.lock()) s->gradient->leaf_hooks()->after.remove(id);
  });
}

Variable Variable::detach() const {
  const VariableState& s = state_of(*this);
  Variable v(s.value);
  v.state_->is_view = true;
  return v;
}

void Variable::detach_() {
  const VariableState& s = state_of(*this);
  if (s.is_view && s.family && s.grad_fn)
    throw Error("detach_: the variable is a view, and its base would still have a history", "use detach()");
  drop_history(*this);
}

void Variable::bump_version() { state_of(*this).value.mark_written(); }

VariableGradient VariableGradient::sparse(Variable indices, Variable values) {
  VariableGradient g;
  g.indices = std::move(indices);
  g.values = std::move(values);
  return g;
}

// Variable::copy_: the values of another variable, and its history, in the bytes of this one.

namespace {

class CopyNode : public Node {
 public:
  CopyNode(std::vector<Edge> edges, const TensorType& type, Place place) : Node(std::move(edges), {type}, place) {}
  std::string name() const override { return "CopyGradient"; }
  Gradients apply(Gradients gradients, const NodeRun& run) override {
    if (!run.wanted[0]) gradients[0] = {};
    return gradients;
  }
};

}  // namespace

void Variable::copy_(const Variable& source, Place place) {
  require(defined() && source.defined(), "copy_: a variable is undefined");
  VariableState& s = *state_;
  require(source.dtype() == s.value.dtype() && source.shape() == s.value.shape(), "copy_: {} cannot be written over {}",
          source.value(), s.value);
  if (source.is_same(*this)) return;
  const bool tracked = tape_state().recording && source.requires_grad();
  check_writable(*this, "copy_", tracked);
  check_view(source);
  // Bytes that overlap are copied by way of others.
  s.value.copy_from(source.value().shares_storage(s.value) ? source.value().clone() : source.value());
  s.value.mark_written();
  if (!tape_state().recording) return;
  if (!tracked) return drop_history(*this);
  const TensorType type = TensorType::of(s.value.dtype(), s.value.shape());
  rebase_history(*this, std::make_shared<CopyNode>(gradient_edges({&source, 1}), type, place), 0);
}

}  // namespace stepnet::autograd
