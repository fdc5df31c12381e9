// Forward mode on the tape, see stepnet/engine.h.
#include <algorithm>
#include <unordered_set>

#include "core/autograd/gradient_buffer.h"
#include "core/autograd/tape_tangents.h"
#include "stepnet/engine.h"
#include "stepnet/record.h"

namespace stepnet::autograd {
namespace {

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

Variable without_history(const Variable& v) {
  Variable shown = v.detach();
  shown.state()->tangents = v.state()->tangents;
  return shown;
}

// The inputs of a function as it is given them: each is a variable of its own, so that its derivatives are partial ones
// even if an input is there twice, or computed from another one.
struct Shown {
  std::vector<Variable> inputs;
  std::vector<std::shared_ptr<Node>> leaves;  // nodes of those that are new, and constants outside

  // So that gradients can be asked of it.
  void add_differentiable(const Variable& x) {
    if (!is_floating(x.dtype()) || x.requires_grad()) {
      inputs.push_back(x.requires_grad() ? view_of(x) : x);
      return;
    }
    check_view(x);
    const Variable leaf = without_history(x);
    leaf.state()->requires_grad = true;
    leaf.state()->make_gradient();
    leaves.push_back(leaf.gradient_edge().node);
    inputs.push_back(leaf);
  }

  // True if a gradient of something else can be asked of the variables.
  bool others_reach(const std::vector<Variable>& variables) const {
    std::vector<const Node*> open;
    std::unordered_set<const Node*> seen;
    for (const auto& leaf : leaves) seen.insert(leaf.get());
    const auto visit = [&](const Edge& edge) {
      if (edge.node && seen.insert(edge.node.get()).second) open.push_back(edge.node.get());
    };
    for (const Variable& v : variables)
      if (v.defined()) visit(v.gradient_edge());
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      if (leaf_of(node).requires_grad()) return true;
      for (const Edge& edge : node.edges()) visit(edge);
    }
    return false;
  }
};

Shown differentiable_inputs(const std::vector<Variable>& inputs) {
  Shown shown;
  for (const Variable& x : inputs) shown.add_differentiable(x);
  return shown;
}

// These, but moving where there is a direction.
std::vector<Variable> duals(const TangentLevel& level, const std::vector<Variable>& inputs,
                            const std::vector<Variable>& directions) {
  std::vector<Variable> moved;
  for (size_t i = 0; i < inputs.size(); ++i)
    moved.push_back(directions[i].defined() ? level.dual(inputs[i], directions[i]) : inputs[i]);
  return moved;
}

}  // namespace

TangentLevel::TangentLevel() : state_(std::make_shared<LevelState>()) { state_->number = next_level(); }

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
  Jvp result{.outputs = fn(duals(level, inputs, directions)), .tangents = {}};
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
  return std::ranges::any_of(variables, [](const Variable& v) { return v.requires_grad(); });
}

Gradients gradients_of(const Variable& output, const std::vector<Variable>& inputs, bool create_graph, bool keep,
                       const Variable& seed = {}) {
  const std::vector<Variable> wanted = differentiable(inputs);
  if (!output.requires_grad()) return Gradients(wanted.size());
  return grad({output}, wanted,
              {.grad_outputs = {seed}, .create_graph = create_graph, .keep_graph = keep, .allow_unused = true});
}

// What a product is computed from: `may_record` unless NoGrad says otherwise.
struct HvpCall {
  const VariableFunction& fn;
  const std::vector<Variable>& inputs;
  const std::vector<Variable>& directions;
  bool may_record;

  // Whether results can be differentiated, by an input, a direction, or what the function has captured.
  bool is_recording(const Shown& shown, const Variable& value) const {
    return may_record && (any_requires_grad(inputs) || any_requires_grad(directions) || shown.others_reach({value}));
  }
};

Hvp forward_over_reverse(const HvpCall& call) {
  const TangentLevel level;
  Shown shown;
  std::vector<Variable> moved;
  Hvp result;
  {
    const EnableGrad enable;
    shown = differentiable_inputs(call.inputs);
    moved = duals(level, shown.inputs, call.directions);
    result.value = only_output(call.fn(moved));
  }
  const bool recording = call.is_recording(shown, result.value);
  result.gradients = spread(moved, gradients_of(result.value, moved, recording, recording));
  for (const Variable& g : result.gradients) {
    const Variable product = g.defined() ? level.tangent(g) : Variable();
    result.products.push_back(product.defined() || !g.defined() ? product : zeros_like(g));
  }
  if (!recording) result.value = without_history(result.value);
  return result;
}

Hvp reverse_over_forward(const HvpCall& call) {
  Shown shown;
  Hvp result;
  Variable slope;
  {
    const EnableGrad enable;
    const TangentLevel level;
    shown = differentiable_inputs(call.inputs);
    result.value = only_output(call.fn(duals(level, shown.inputs, call.directions)));
    slope = level.tangent(result.value);
    if (!slope.defined()) slope = zeros_like(result.value);
  }
  const bool recording = call.is_recording(shown, result.value);
  const std::vector<Variable>& at = shown.inputs;
  result.gradients = spread(at, gradients_of(result.value, at, recording, true));
  result.products = spread(at, gradients_of(slope, at, recording, recording));
  if (!recording) result.value = without_history(result.value);
  return result;
}

}  // namespace

Hvp hvp(const VariableFunction& fn, const std::vector<Variable>& inputs, const std::vector<Variable>& directions) {
  check_directions(inputs, directions);
  const HvpCall call{fn, inputs, directions, tape_state().recording};
  const RandomState draws = random_state();
  try {
    return forward_over_reverse(call);
  } catch (const NoTangentOfGradient&) {
    const RandomStateScope same(draws);
    return reverse_over_forward(call);
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
  const bool may_record = tape_state().recording;
  Shown shown;
  std::vector<Variable> outputs;
  {
    const EnableGrad enable;
    shown = differentiable_inputs(inputs);
    outputs = fn(shown.inputs);
  }
  const std::vector<Variable>& at = shown.inputs;
  const bool recording = may_record && (any_requires_grad(inputs) || shown.others_reach(outputs));
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
