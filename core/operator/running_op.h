// Which operator the calling thread is in, for what it queues on a GPU. Threads: per thread.
#pragma once

#include "stepnet/bound_op.h"

namespace stepnet {

// running_op() is this operator for a scope, if it is one of a GPU.
class RunningScope {
 public:
  explicit RunningScope(const BoundOp& op);
  ~RunningScope();
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  const BoundOp* before_;
};

}  // namespace stepnet
