// Variable: a tensor on the tape, with the flag that asks for its gradient, that gradient, and its place in the graph.
//
// A Variable is a handle: copies show the same variable. A leaf is made by the user; an interior variable is the output
// of a recorded operator and knows the node that differentiates it (`grad_fn`). The graph holds no leaf's gradient and
// no leaf holds the graph, so that dropping the last interior variable drops the graph.
//
// Views (outputs of operators whose schema says that they share an input's storage, and `detach`) share bytes and
// version with what they are views of. A view by an operator has the history of its base. So writing in place through
// it is refused if the base requires a gradient, or would have to from then on; and so is using a recorded view after
// its base was written, or any view after its base was given another history: take the view again. `detach` has none,
// and may be written: the base does not learn of it but by its version.
//
// Formulas: reverse mode of automatic differentiation, as in Griewank and Walther, "Evaluating Derivatives".
// Threads: different variables may be used by different threads; one variable by one thread at a time, but for its
// gradient, which accumulates under a lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "stepnet/tape.h"
#include "stepnet/tensor.h"

namespace stepnet::autograd {

class Node;
struct VariableState;
struct VariableGradient;

// Where a gradient flows to: input `index` of `node`, which is output `index` of the forward operator.
struct Edge {
  std::shared_ptr<Node> node;
  int index = 0;
  bool valid() const { return node != nullptr; }
  bool operator==(const Edge&) const = default;
};

// Gets a gradient and may return another in its place; an undefined one keeps it. It must not write to what it gets.
using GradientHook = std::function<VariableGradient(const VariableGradient&)>;

// Takes a hook away again. It does not keep what it is registered on alive. Dropping the handle leaves the hook.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  void remove() {
    if (remove_) remove_();
    remove_ = nullptr;
  }

 private:
  std::function<void()> remove_;
};

class Variable {
 public:
  Variable() = default;  // undefined: an absent input, a gradient that is none
  // A leaf. Throws Error if it is to have a gradient but its elements are no floating-point numbers.
  explicit Variable(Tensor value, bool requires_grad = false);
  explicit Variable(std::shared_ptr<VariableState> state) : state_(std::move(state)) {}

  bool defined() const { return state_ != nullptr; }
  const Tensor& value() const;  // throws Error if undefined
  // The tensor itself, to write to unseen: neither the version nor the history changes.
  Tensor& unchecked_value();
  DType dtype() const { return value().dtype(); }
  const Shape& shape() const { return value().shape(); }
  uint64_t version() const { return value().version(); }  // of the bytes; rises with every write in place
  void bump_version();                                    // after a write by other means
  std::string str() const;                                // "float[2, 3]" or "undefined"

  bool requires_grad() const;  // the leaf's flag, or whether it is interior
  Variable& set_requires_grad(bool requires_grad = true);
  bool is_leaf() const;  // has no history
  bool is_view() const;
  const std::shared_ptr<Node>& grad_fn() const;  // null for a leaf
  int output_index() const;                      // which output of the forward operator it is
  // Where its gradient flows to; a leaf's accumulator is made if there is none. Invalid if it needs no gradient.
  Edge gradient_edge() const;

  // The gradient that `backward` has accumulated here; undefined if none. Writing to it is up to the caller.
  const VariableGradient& grad() const;
  void set_grad(VariableGradient gradient);
  void clear_grad();
  // An interior variable keeps its gradient too. No effect on a leaf.
  void retain_grad();
  // Called with each gradient that arrives here, before it is kept or flows on, in order of registration.
  HookHandle register_hook(GradientHook hook) const;
  // A leaf's only: called after its gradient was accumulated, without recording.
  HookHandle register_post_accumulate_hook(std::function<void(Variable&)> hook) const;

  // The same bytes and version, without history and without tangents.
  Variable detach() const;
  // Cuts this variable off from its history, and from its tangents. Throws Error on a view.
  void detach_();  // NOLINT(readability-identifier-naming): as all that writes in place
  // Overwrites the values with those of `source`, of the same type and shape; the history is that of `source` from now
  // on. Throws Error on a leaf that requires a gradient and on a recorded view.
  void copy_(const Variable& source, Place place = Place::here());  // NOLINT(readability-identifier-naming)

  VariableState* state() const { return state_.get(); }
  const std::shared_ptr<VariableState>& shared_state() const { return state_; }
  bool is_same(const Variable& other) const { return state_ == other.state_; }

 private:
  std::shared_ptr<VariableState> state_;
};

// A gradient on the tape: dense, sparse rows of a tensor (indices [N], values [N, ...]), or none.
struct VariableGradient {
  Variable dense;
  Variable indices, values;
  VariableGradient() = default;
  VariableGradient(Variable v) : dense(std::move(v)) {}  // NOLINT(google-explicit-constructor): most are dense
  static VariableGradient sparse(Variable indices, Variable values);
  bool is_sparse() const { return values.defined(); }
  bool defined() const { return dense.defined() || is_sparse(); }
  const Tensor& value() const { return dense.value(); }
};

}  // namespace stepnet::autograd
