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

AccumulateGrad::AccumulateGrad(Variable leaf)
    : Node({}, {TensorType::of(leaf.dtype(), leaf.shape())}, {}), leaf_(std::move(leaf)) {
  set_sequence(std::numeric_limits<uint64_t>::max());
}

std::vector<GradientHook> AccumulateGrad::output_hooks(int) const {
  const auto& hooks = leaf_.state()->gradient->hooks;
  return hooks ? hooks->of_gradient.all() : std::vector<GradientHook>{};
}

Gradients AccumulateGrad::apply(Gradients gradients, const NodeRun& run) {
  if (!gradients[0].defined() || !leaf_.state()->requires_grad) return {};  // it may be no leaf any more
  VariableGradient g = std::move(gradients[0]);
  gradients.clear();
  accumulate_gradient(leaf_, std::move(g), run.recording);
  if (const auto& hooks = leaf_.state()->gradient->hooks) {
    const NoGrad no_grad;
    for (const auto& hook : hooks->after.all()) hook(leaf_);
  }
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
