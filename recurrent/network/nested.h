// NestedOp: a RecurrentNetwork, or its gradient, that stands in a step net.
//
// Such an operator works on blobs, of which it makes some of its own: states, and what it keeps for its gradient. They
// live in a workspace that all nested operators of one StepProgram share, where the step's values are put before the
// operator runs and taken from after it. A backward step net runs the nested network forward once more before its
// gradient, so one timestep's blobs are all that there are.
//
// Borrows: the workspace. Threads: one run at a time.
#pragma once

#include <vector>

#include "core/operator/bound_op.h"
#include "core/tensor/workspace.h"

namespace stepnet {

// True if the operator may stand in a step net though it works on blobs. Others that run nets may not: which values
// they read and write is known only while they run.
bool is_recurrent(const OpSpec& spec);

class NestedOp {
 public:
  NestedOp(BoundOp op, Workspace& workspace);

  // `in`: the step's values, null where the operator has no input; one without type is an object of the workspace.
  // The draws of random operators differ from one outer timestep to the next.
  void run(const std::vector<const Tensor*>& in, const RunContext& run);
  // What the operator made; undefined if that is no tensor, or not wanted.
  Tensor result(size_t output) const;

 private:
  BoundOp op_;
  Workspace& workspace_;
  std::vector<Blob*> in_, out_;
};

// Types of the outputs of a RecurrentNetwork that its step net writes, as far as they are not known from its schema.
void infer_nested(const BoundOp& op, std::span<const TensorType> in, std::span<TensorType> out);

}  // namespace stepnet
