// What a Variable's handles share; for the tape's own files.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "stepnet/node.h"
#include "stepnet/tape.h"

namespace stepnet::autograd {

struct LeafHooks {
  HookList<GradientHook> of_gradient;
  HookList<std::function<void(Variable&)>> after;
};

// What leaves have, and interior variables that retain their gradient.
struct GradientState {
  std::mutex lock;  // of the gradient, and of making an accumulator
  VariableGradient grad;
  std::weak_ptr<Node> accumulator;   // of a leaf; the graph owns it
  ParameterMark mark;                // of a leaf that requires a gradient, on its bytes
  std::shared_ptr<LeafHooks> hooks;  // of a leaf, shared with its accumulator; an interior variable's are its node's
  const std::shared_ptr<LeafHooks>& leaf_hooks() {
    if (!hooks) hooks = std::make_shared<LeafHooks>();
    return hooks;
  }
};

// What a variable shares with its views.
struct ViewFamily {
  std::weak_ptr<VariableState> base;
  uint64_t history_version = 0;  // of the storage, when the base was last given another history
  uint64_t tangent_version = 0;  // of the storage, when the base was last written and had tangents before or after
};

struct LevelState;

// A tangent of a variable, shared with the values that were saved of it. It is undefined once its level has ended.
struct TangentSlot {
  Variable tangent;
  uint64_t version = 0;  // of its bytes, which nobody may write any more
};

struct LevelTangent {
  std::shared_ptr<LevelState> level;
  std::shared_ptr<TangentSlot> slot;
};
using Tangents = std::vector<LevelTangent>;  // levels that began later are behind

struct VariableState {
  VariableState() = default;
  ~VariableState() {
    let_go(std::move(grad_fn));
    let_go(std::move(gradient));  // which may hold other variables: as the gradient, or in hooks
    if (tangents) let_go(std::const_pointer_cast<Tangents>(std::move(tangents)));
  }
  VariableState(const VariableState&) = delete;
  VariableState& operator=(const VariableState&) = delete;

  Tensor value;
  std::shared_ptr<Node> grad_fn;       // of an interior variable
  std::shared_ptr<ViewFamily> family;  // of a view by an operator, and of what there are such views of
  uint64_t view_version = 0;           // of the storage when the view was taken
  int output_index = 0;
  bool requires_grad = false;  // of a leaf
  bool is_view = false;        // its bytes are another variable's
  bool retains_grad = false;
  std::shared_ptr<GradientState> gradient;   // null: no gradient was ever asked for
  std::shared_ptr<const Tangents> tangents;  // null: none
  GradientState& make_gradient() {
    if (!gradient) gradient = std::make_shared<GradientState>();
    return *gradient;
  }
};

}  // namespace stepnet::autograd
