// Sums of gradients on the tape, by the operators that have these roles in stepnet/op_spec.h, and the node that
// adds what arrives to a leaf's gradient.
//
// Threads: as Variable.
#pragma once

#include "stepnet/node.h"

namespace stepnet::autograd {

// Nobody else holds the variable or its bytes, so that they may be written or taken over.
bool is_only_holder(const VariableGradient& gradient);
// The same numbers in bytes of their own; with the history, if the thread records.
Variable copied(const Variable& v);
// a + b. In place in `a` or `b` if only the caller holds it and nothing is recorded; `a` and `b` are moved in.
VariableGradient add_gradients(VariableGradient a, VariableGradient b, const TensorType& type);
// The same in place in a dense `a` whoever else sees it, as a leaf's gradient keeps its identity.
void add_in_place(Variable& a, VariableGradient b);
// Sparse rows as a tensor of that type.
Variable make_dense(const VariableGradient& gradient, const TensorType& type);
// Zeros or ones of that type.
Variable filled(const TensorType& type, Device device, float value);
// Checks a gradient against the type of what it is the gradient of; one of a shape that broadcasts from it is summed
// down to it. `what`, and the node's name behind it, name it in Errors.
VariableGradient checked_gradient(VariableGradient gradient, const TensorType& type, std::string_view what,
                                  const Node* node = nullptr);

struct LeafHooks;

// The node of a leaf. It does not keep the leaf: a gradient that has a graph would own itself through it. Once the leaf
// is gone, no program can see its gradient, so it is released; hooks on the gradient are called all the same.
class AccumulateGrad : public Node {
 public:
  explicit AccumulateGrad(const Variable& leaf);
  std::string name() const override { return "AccumulateGrad"; }
  Gradients apply(Gradients gradients, const NodeRun& run) override;
  bool takes_sparse() const override { return true; }
  std::vector<GradientHook> output_hooks(int output) const override;
  Variable leaf() const { return Variable(leaf_.lock()); }  // undefined once the leaf is gone

 private:
  std::weak_ptr<VariableState> leaf_;
  std::shared_ptr<LeafHooks> hooks_;
};

// The leaf whose node this is; undefined if it is no leaf's, or that is gone.
Variable leaf_of(const Node& node);
// Where the variables are whose node this is.
Device device_of_output(const Node& node);

// Adds a gradient to that of a variable, under its lock. The first is taken over if nobody else holds it and copied
// otherwise; later ones are added in place, unless `recording`. Sparse to sparse puts rows behind one another.
void accumulate_gradient(const Variable& variable, VariableGradient gradient, bool recording);

}  // namespace stepnet::autograd
