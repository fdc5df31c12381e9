#include "core/autograd/accumulate_grad.h"

#include <limits>

#include "core/autograd/gradient_sums.h"
#include "core/autograd/variable_state.h"

namespace stepnet::autograd {
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

void accumulate_gradient(const Variable& variable, VariableGradient g, bool recording) {
  const Tensor& value = variable.value();
  GradientState& s = variable.state()->make_gradient();
  const std::lock_guard lock(s.lock);
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
