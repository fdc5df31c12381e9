// Forward mode on the tape, see stepnet/engine.h.
#include <algorithm>
#include <atomic>

#include "core/autograd/gradient_buffer.h"
#include "core/autograd/tangents.h"
#include "stepnet/engine.h"
#include "stepnet/record.h"

namespace stepnet::autograd {
namespace {

std::atomic<uint64_t> g_levels{0};

Variable view_of(const Variable& x) {
  static const std::shared_ptr<const EagerOp> op = EagerOp::get({op_with_role(Role::alias).type, {true}, {true}});
  return run1(*op, {&x, 1});
}

Variable zeros_like(const Variable& v) { return filled(TensorType::of(v.dtype(), v.shape()), v.value().device(), 0); }

void check_directions(const std::vector<Variable>& inputs, const std::vector<Variable>& directions) {
  require(inputs.size() == directions.size(), "there are {} inputs, but {} directions", inputs.size(),
          directions.size());
  for (size_t i = 0; i < inputs.size(); ++i) require(inputs[i].defined(), "input {} is undefined", i);
}

// What moves: as a variable that gradients can be asked of.
std::vector<Variable> duals(const TangentLevel& level, const std::vector<Variable>& inputs,
                            const std::vector<Variable>& directions, bool differentiable) {
  std::vector<Variable> moved;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Variable& x = inputs[i];
    const bool is_new = differentiable && !x.requires_grad() && is_floating(x.dtype());
    const Variable shown = is_new ? x.detach() : x;
    if (is_new) {
      shown.state()->tangents = x.state()->tangents;
      shown.state()->requires_grad = true;
      shown.state()->make_gradient();
    }
    moved.push_back(directions[i].defined() ? level.dual(shown, directions[i]) : shown);
  }
  return moved;
}

}  // namespace

TangentLevel::TangentLevel() : state_(std::make_shared<LevelState>()) { state_->number = ++g_levels; }

TangentLevel::~TangentLevel() {
  std::vector<Variable> gone;  // destroyed without the lock
  {
    const std::lock_guard lock(state_->lock);
    state_->ended = true;
    for (const std::weak_ptr<TangentSlot>& weak : state_->slots)
      if (const auto slot = weak.lock()) gone.push_back(std::exchange(slot->tangent, {}));
    state_->slots.clear();
  }
}

Variable TangentLevel::dual(const Variable& x, const Variable& direction) const {
  require(x.defined() && direction.defined(), "a variable that is to move, or its direction, is undefined");
  require(is_floating(x.dtype()), "{} cannot move: only floating-point elements do", x.value());
  require(direction.dtype() == x.dtype() && direction.shape() == x.shape(), "{} cannot move along {}", x.value(),
          direction.value());
  Variable moved = view_of(x);
  set_tangent(moved, state_, direction);
  return moved;
}

Variable TangentLevel::tangent(const Variable& v) const { return tangent_of(v, *state_); }

Jvp jvp(const VariableFunction& fn, const std::vector<Variable>& inputs, const std::vector<Variable>& directions) {
  check_directions(inputs, directions);
  const TangentLevel level;
  Jvp result{.outputs = fn(duals(level, inputs, directions, false)), .tangents = {}};
  for (const Variable& out : result.outputs) {
    Variable tangent = out.defined() ? level.tangent(out) : Variable();
    if (!tangent.defined() && out.defined() && is_floating(out.dtype())) tangent = zeros_like(out);
    result.tangents.push_back(std::move(tangent));
  }
  return result;
}

namespace {

Variable only_output(const std::vector<Variable>& outputs) {
  require(outputs.size() == 1 && outputs[0].defined() && outputs[0].shape().size() == 1,
          "a Hessian is of a function with one output of one element");
  return outputs[0];
}

// The variables that gradients are asked of: those of floating-point elements.
std::vector<Variable> differentiable(const std::vector<Variable>& variables) {
  std::vector<Variable> some;
  for (const Variable& v : variables)
    if (is_floating(v.dtype())) some.push_back(v);
  return some;
}

// One per variable, of those of its differentiable ones; zeros where there is none, undefined for the others.
std::vector<Variable> spread(const std::vector<Variable>& variables, const Gradients& gradients) {
  std::vector<Variable> all;
  size_t next = 0;
  for (const Variable& v : variables) {
    if (!is_floating(v.dtype())) {
      all.emplace_back();
      continue;
    }
    const VariableGradient& g = gradients[next++];
    all.push_back(g.defined() ? make_dense(g, TensorType::of(v.dtype(), v.shape())) : zeros_like(v));
  }
  return all;
}

bool any_requires_grad(const std::vector<Variable>& variables) {
  return tape_state().recording && std::ranges::any_of(variables, [](const Variable& v) { return v.requires_grad(); });
}

Gradients gradients_of(const Variable& output, const std::vector<Variable>& inputs, bool create_graph, bool keep,
                       const Variable& seed = {}) {
  const std::vector<Variable> wanted = differentiable(inputs);
  if (!output.requires_grad()) return Gradients(wanted.size());
  return grad({output}, wanted,
              {.grad_outputs = {seed}, .create_graph = create_graph, .keep_graph = keep, .allow_unused = true});
}

Hvp forward_over_reverse(const VariableFunction& fn, const std::vector<Variable>& inputs,
                         const std::vector<Variable>& directions, bool recording) {
  const TangentLevel level;
  std::vector<Variable> moved;
  Hvp result;
  {
    const EnableGrad enable;
    moved = duals(level, inputs, directions, true);
    result.value = only_output(fn(moved));
  }
  result.gradients = spread(moved, gradients_of(result.value, moved, recording, recording));
  for (const Variable& g : result.gradients) {
    const Variable product = g.defined() ? level.tangent(g) : Variable();
    result.products.push_back(product.defined() || !g.defined() ? product : zeros_like(g));
  }
  if (!recording) result.value = result.value.detach();
  return result;
}

Hvp reverse_over_forward(const VariableFunction& fn, const std::vector<Variable>& inputs,
                         const std::vector<Variable>& directions, bool recording) {
  std::vector<Variable> moved;
  Hvp result;
  Variable slope;
  {
    const EnableGrad enable;
    const TangentLevel level;
    moved = duals(level, inputs, std::vector<Variable>(inputs.size()), true);
    std::vector<Variable> shown;
    for (size_t i = 0; i < moved.size(); ++i)
      shown.push_back(directions[i].defined() ? level.dual(moved[i], directions[i]) : moved[i]);
    result.value = only_output(fn(shown));
    slope = level.tangent(result.value);
    if (!slope.defined()) slope = zeros_like(result.value);
  }
  result.gradients = spread(moved, gradients_of(result.value, moved, recording, true));
  result.products = spread(moved, gradients_of(slope, moved, recording, recording));
  if (!recording) result.value = result.value.detach();
  return result;
}

}  // namespace

Hvp hvp(const VariableFunction& fn, const std::vector<Variable>& inputs, const std::vector<Variable>& directions) {
  check_directions(inputs, directions);
  const bool recording = any_requires_grad(inputs);
  const RandomState draws = random_state();
  try {
    return forward_over_reverse(fn, inputs, directions, recording);
  } catch (const NoTangentOfGradient&) {
    const RandomStateScope same(draws);
    return reverse_over_forward(fn, inputs, directions, recording);
  }
}

namespace {

// 1 at element `i`, else 0.
Variable one_at(const Variable& like, int64_t i) {
  Tensor t = Tensor::zeros(like.dtype(), like.shape());
  if (t.dtype() == DType::float64) {
    t.span<double>()[i] = 1;
  } else {
    require(t.dtype() == DType::float32, "derivatives of {}, element by element, are there for float and double",
            like.value());
    t.span<float>()[i] = 1;
  }
  return Variable(on_device(t, like.value().device()));
}

// Variables of one shape, one behind another along a new first dimension; `like` says which if there are none.
Variable stacked(const std::vector<Variable>& rows, const Variable& like) {
  if (rows.empty()) {
    Shape shape = {0};
    for (int d = 0; d < like.shape().rank(); ++d) shape.push_back(like.shape()[d]);
    return Variable(Tensor::zeros(like.dtype(), shape));
  }
  return run(op_with_role(Role::concat).type, rows, {make_arg("axis", 0), make_arg("add_axis", 1)}, {.outputs = 2})[0];
}

}  // namespace

std::vector<std::vector<Variable>> jacobian(const VariableFunction& fn, const std::vector<Variable>& inputs) {
  check_directions(inputs, inputs);
  const bool recording = any_requires_grad(inputs);
  std::vector<Variable> outputs, at;
  {
    const EnableGrad enable;
    const TangentLevel level;
    at = duals(level, inputs, std::vector<Variable>(inputs.size()), true);
    outputs = fn(at);
  }
  std::vector<std::vector<Variable>> all;
  for (const Variable& out : outputs) {
    require(out.defined() && is_floating(out.dtype()), "an output has no derivatives: it is {}", out.str());
    std::vector<std::vector<Variable>> rows(at.size());
    for (int64_t i = 0; i < out.shape().size(); ++i) {
      const std::vector<Variable> row = spread(at, gradients_of(out, at, recording, true, one_at(out, i)));
      for (size_t k = 0; k < at.size(); ++k) rows[k].push_back(row[k]);
    }
    std::vector<Variable>& blocks = all.emplace_back();
    for (size_t k = 0; k < at.size(); ++k)
      blocks.push_back(is_floating(at[k].dtype()) ? stacked(rows[k], at[k]) : Variable());
  }
  return all;
}

std::vector<std::vector<Variable>> hessian(const VariableFunction& fn, const std::vector<Variable>& inputs) {
  check_directions(inputs, inputs);
  std::vector<std::vector<Variable>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Variable>& blocks = all.emplace_back(inputs.size());
    if (!is_floating(inputs[i].dtype())) continue;
    std::vector<std::vector<Variable>> rows(inputs.size());
    for (int64_t e = 0; e < inputs[i].shape().size(); ++e) {
      std::vector<Variable> directions(inputs.size());
      directions[i] = one_at(inputs[i], e);
      const Hvp row = hvp(fn, inputs, directions);
      for (size_t k = 0; k < inputs.size(); ++k) rows[k].push_back(row.products[k]);
    }
    for (size_t k = 0; k < inputs.size(); ++k)
      if (is_floating(inputs[k].dtype())) blocks[k] = stacked(rows[k], inputs[k]);
  }
  return all;
}

}  // namespace stepnet::autograd
