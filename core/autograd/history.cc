// What a write in place does to a variable's history, and what it may not do.
#include "core/autograd/record.h"
#include "core/autograd/variable_state.h"

namespace stepnet::autograd {
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
  if (!s.is_view || !s.family || s.view_version == s.value.version() || !tape_state().recording) return;
  if (!s.grad_fn && s.family->history_version <= s.view_version) return;
  throw Error(fmt::format("{} is a view, and what it is a view of was written in place since it was taken", s.value),
              "take the view again");
}

}  // namespace stepnet::autograd
