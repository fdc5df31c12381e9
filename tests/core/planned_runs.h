// A net that runs again and again in a workspace of its own, for tests that compare runs with planned memory and
// without it.
//
// Threads: not for concurrent use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/net.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

class NetRuns {
 public:
  NetRuns(const NetDef& net, const Feeds& feeds, const NetOptions& options);

  void feed(const Feeds& feeds);  // copies
  void run();
  // Of the latest run: blocks that it took from the allocator, and the most bytes that were live.
  int64_t allocations() const { return allocations_; }
  int64_t peak() const { return peak_; }
  Workspace& workspace() { return workspace_; }
  Net& net() { return *net_; }

 private:
  Workspace workspace_;
  std::unique_ptr<Net> net_;
  int64_t allocations_ = 0, peak_ = 0;
};

// "" or the first of these blobs that has not the same type and bits in both.
std::string difference(NetRuns& a, NetRuns& b, const std::vector<std::string>& names);

// The forward net, its backward pass from `loss`, and a step along the gradient for each of these parameters that the
// loss depends on. Their new values and the loss are its external outputs.
NetDef descent_net(NetDef forward, const std::string& loss, const std::vector<std::string>& parameters);

// The net's external outputs.
std::vector<std::string> outputs_of(const NetDef& net);

}  // namespace stepnet::testing
