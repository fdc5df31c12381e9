#include "stepnet/variable.h"

#include "core/autograd/capture.h"
#include "core/autograd/gradient_buffer.h"
#include "core/autograd/tape_tangents.h"
#include "core/autograd/variable_state.h"
#include "stepnet/record.h"

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
  VariableState& s = state_of(*this);
  if (s.is_view && s.family && (s.grad_fn || moves({this, 1})))
    throw Error("detach_: the variable is a view, and its base would still have a history", "use detach()");
  drop_history(*this);
  s.tangents = nullptr;
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
  const bool moved = moves({this, 1}) || moves({&source, 1});
  if (moved) check_moving_write(*this, "copy_", moves({&source, 1}));
  TapeCapture* const capture = tape_state().capture;
  const std::string name = capture ? capture->name_to_copy(source.value(), s.value) : "";
  // Bytes that overlap are copied by way of others.
  s.value.copy_from(source.value().shares_storage(s.value) ? source.value().clone() : source.value());
  s.value.mark_written();
  if (capture) capture->wrote(name, s.value);
  s.tangents = source.state()->tangents;
  if (moved) mark_moved(*this);
  if (!tape_state().recording) return;
  if (!tracked) return drop_history(*this);
  const TensorType type = TensorType::of(s.value.dtype(), s.value.shape());
  rebase_history(*this, std::make_shared<CopyNode>(gradient_edges({&source, 1}), type, place), 0);
}

// What a write in place does to a variable's history, and what it may not do.
namespace {

bool requires_grad(const VariableState& s) { return s.requires_grad || s.grad_fn; }

void check_writable_view(const VariableState& s, const std::string& by, bool tracked) {
  const std::shared_ptr<VariableState> base = s.family->base.lock();
  if (s.grad_fn || (base && requires_grad(*base)))
    throw Error(
        fmt::format("{} would write in place to a view, {}, and the history of what it is a view of would be wrong", by,
                    s.value),
        "write to the base, or to a copy");
  if (tracked && base)
    throw Error(fmt::format("{} would write what requires a gradient in place to a view, {}, of a constant, which would"
                            " still have no history",
                            by, s.value),
                "write to the base, or to a copy");
}

// Its node no longer gives the variable its gradient.
void stop_retaining(VariableState& s) {
  if (s.retains_grad && s.grad_fn) s.grad_fn->hooks().retained.erase(s.output_index);
}

}  // namespace

void check_writable(const Variable& variable, const std::string& by, bool tracked) {
  const VariableState& s = *variable.state();
  before_write(s.value);
  if (!tape_state().recording) return;
  if (s.requires_grad)
    throw Error(fmt::format("{} would write in place to a leaf that requires a gradient, {}", by, s.value),
                "do it inside NoGrad, or on a copy");
  if (s.is_view && s.family) check_writable_view(s, by, tracked);
}

void rebase_history(const Variable& variable, std::shared_ptr<Node> node, int output) {
  VariableState& s = *variable.state();
  if (s.retains_grad) {
    stop_retaining(s);
    node->hooks().retained[output] = variable.shared_state();
  }
  s.grad_fn = std::move(node);
  s.output_index = output;
  if (s.family) s.family->history_version = s.value.version();
}

void drop_history(const Variable& variable) {
  VariableState& s = *variable.state();
  stop_retaining(s);
  s.grad_fn.reset();
  s.output_index = 0;
  s.requires_grad = false;
  if (s.gradient) s.gradient->mark = {};
  s.retains_grad = false;
}

void make_view(const Variable& view, const Variable& base) {
  VariableState& s = *view.state();
  VariableState& b = *base.state();
  if (!b.family) {
    b.family = std::make_shared<ViewFamily>();
    b.family->base = base.shared_state();
  }
  s.is_view = true;
  s.family = b.family;
  s.view_version = s.value.version();
}

void check_view(const Variable& variable) {
  const VariableState& s = *variable.state();
  if (!s.is_view || !s.family || s.view_version == s.value.version()) return;
  const bool has_history = tape_state().recording && (s.grad_fn || s.family->history_version > s.view_version);
  if (!has_history && s.family->tangent_version <= s.view_version && !moves({&variable, 1})) return;
  throw Error(fmt::format("{} is a view, and what it is a view of was written in place since it was taken", s.value),
              "take the view again");
}

}  // namespace stepnet::autograd
