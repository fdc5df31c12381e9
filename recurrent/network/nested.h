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

#include "recurrent/step/inner_operator.h"

namespace stepnet {

// True if the operator may stand in a step net though it works on blobs. Others that run nets may not: which values
// they read and write is known only while they run.
bool is_recurrent(const OpSpec& spec);

class NestedOp : public InnerOperator {
 public:
  NestedOp(BoundOp op, Workspace& workspace);
  void run(const std::vector<const Tensor*>& in, const RunContext& run) override;
  Tensor result(size_t output) const override;
  void infer(std::span<const TensorType> in, std::span<TensorType> out) const override;

 private:
  BoundOp op_;
  Workspace& workspace_;
  std::vector<Blob*> in_, out_;
};

// For StepSpec: a NestedOp of what is_recurrent, null for all others.
std::unique_ptr<InnerOperator> make_nested(const BoundOp& op, Workspace& workspace);

}  // namespace stepnet
