// AccumulateGrad: the node of a leaf, which adds what arrives to the leaf's gradient.
//
// It does not keep the leaf: a gradient that has a graph would own itself through it. Once the leaf is gone, nobody can
// see its gradient, so that it is let go of; hooks on the gradient are called all the same.
#pragma once

#include "core/autograd/node.h"

namespace stepnet::autograd {

struct LeafHooks;

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

// Adds a gradient to that of a variable, under its lock. The first is taken over if nobody else holds it and copied
// otherwise; later ones are added in place, unless `recording`. Sparse to sparse puts rows behind one another.
void accumulate_gradient(const Variable& variable, VariableGradient gradient, bool recording);

}  // namespace stepnet::autograd
