// AccumulateGrad: the node of a leaf, which adds what arrives to the leaf's gradient.
#pragma once

#include "core/autograd/node.h"

namespace stepnet::autograd {

class AccumulateGrad : public Node {
 public:
  explicit AccumulateGrad(Variable leaf);
  std::string name() const override { return "AccumulateGrad"; }
  Gradients apply(Gradients gradients, const NodeRun& run) override;
  bool takes_sparse() const override { return true; }
  std::vector<GradientHook> output_hooks(int output) const override;
  const Variable& leaf() const { return leaf_; }

 private:
  Variable leaf_;
};

// Adds a gradient to that of a variable, under its lock. The first is taken over if nobody else holds it and copied
// otherwise; later ones are added in place, unless `recording`. Sparse to sparse puts rows behind one another.
void accumulate_gradient(const Variable& variable, VariableGradient gradient, bool recording);

}  // namespace stepnet::autograd
