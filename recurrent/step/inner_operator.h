// InnerOperator: an operator of a step net that runs a net of its own, as a step program sees it.
//
// Which operators these are, and how they run, the rooms behind this one know: they give a MakeInner with the program.
// Threads: one run at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "stepnet/bound_op.h"
#include "stepnet/workspace.h"

namespace stepnet {

class InnerOperator {
 public:
  virtual ~InnerOperator() = default;
  // `in`: the step's values, null where the operator has no input; one without type is an object of the workspace.
  // The draws of random operators differ from one outer timestep to the next.
  virtual void run(const std::vector<const Tensor*>& in, const RunContext& run) = 0;
  // What the operator made; undefined if that is no tensor, or not wanted.
  virtual Tensor result(size_t output) const = 0;
  // Types of the outputs that its net writes, as far as they are not known from the operator's schema.
  virtual void infer(std::span<const TensorType> in, std::span<TensorType> out) const = 0;
};

// Null if the operator may not stand in a step net. The workspace is that of all such operators of one program.
using MakeInner = std::unique_ptr<InnerOperator> (*)(const BoundOp& op, Workspace& workspace);

}  // namespace stepnet
