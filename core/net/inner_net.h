// InnerNet: a net in an operator's argument that the operator runs, on the workspace it stands in or on one of its own.
//
// The net is bound when it runs for the first time, because operators before may make what it reads, and because a
// branch that is never taken need not be right about files. Its operators see the context of the run around it.
// Threads: one run at a time, as of the net around it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/net.h"

namespace stepnet {

class InnerNet {
 public:
  InnerNet();
  ~InnerNet();
  InnerNet(const InnerNet&) = delete;
  InnerNet& operator=(const InnerNet&) = delete;

  // `argument` and `net` are the same in every run. Random operators and those that count runs get `iteration`. The net
  // runs on `inside`, or if that is null on the workspace that the operator stands in.
  void run(const char* argument, const NetArg& net, const BlobCall& call, const RunContext& context, int64_t iteration,
           const std::shared_ptr<Workspace>& inside = nullptr) const;

 private:
  void bind(const char* argument, const NetArg& net, Workspace& workspace) const;

  mutable std::shared_ptr<Workspace> inside_;  // what the net is bound to, so that no other can have its address
  mutable std::unique_ptr<Net> net_;
  mutable std::vector<std::pair<std::string, const Blob*>> reads_;  // of what others write
};

// Schema and names of the net, as far as they are known without a workspace. Throws Error.
void check_inner_net(const char* argument, const NetArg& net);

// Drops outputs whose bytes the net around has let go of since the last run: the inner net may leave them unwritten.
void forget_released_outputs(const BlobCall& call);

// The value of input `i`, one bool. Throws Error.
bool truth_of_input(const BlobCall& call, int i);

}  // namespace stepnet
