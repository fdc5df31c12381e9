// NetObserver: sees each operator of a net before and after it runs, with what the net releases behind it.
//
// Threads: called by the thread that runs the net.
#pragma once

#include "core/operator/bound_op.h"

namespace stepnet {

class NetObserver {
 public:
  virtual ~NetObserver() = default;
  virtual void before(const BoundOp& op) = 0;
  virtual void after(const BoundOp& op) = 0;  // not if it throws
};

}  // namespace stepnet
