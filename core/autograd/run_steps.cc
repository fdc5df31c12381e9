#include "core/autograd/run_steps.h"

#include <algorithm>

#include "core/operator/in_place.h"
#include "core/tensor/small_vector.h"
#include "stepnet/record.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kFew = 4;

// A sum to a shape that is there already.
bool sums_nothing(const EagerOp& op, std::span<const Variable> inputs) {
  const bool fits_shape = op.spec().role == Role::sum_to || may_be_alias(op.spec(), 0);
  return fits_shape && inputs.size() == 2 && inputs[0].shape() == inputs[1].shape();
}

}  // namespace

void run_steps(const EagerGradient& gradient, std::span<Variable> slots, Place place) {
  const GradientProgram& program = gradient.program;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const GradientProgram::Step& step = program.steps[s];
    const EagerOp& op = *gradient.steps[s];
    InlineVector<Variable, kFew> inputs(step.inputs.size()), made(static_cast<size_t>(op.outputs()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int in = step.inputs[i];
      if (in < 0) continue;
      // The last reader holds a value alone.
      const bool again =
          std::find(step.inputs.begin() + static_cast<int64_t>(i) + 1, step.inputs.end(), in) != step.inputs.end();
      inputs[i] = gradient.last_use[in] == static_cast<int>(s) && !again ? std::move(slots[in]) : slots[in];
    }
    if (sums_nothing(op, inputs)) {
      slots[step.outputs[0]] = std::move(inputs[0]);
      continue;
    }
    run_into(op, inputs, made, place);
    for (size_t o = 0; o < made.size(); ++o)
      if (step.outputs[o] >= 0) slots[step.outputs[o]] = std::move(made[o]);
  }
}

}  // namespace stepnet::autograd
