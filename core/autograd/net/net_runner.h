// NetRunner: a net bound to a workspace of its own, and NetRunners, those of one net that wait to run again.
//
// Threads: a runner belongs to one thread at a time; runners are taken and put back under a lock.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/net/net.h"

namespace stepnet::autograd {

class NetRunner {
 public:
  NetRunner(const NetDef& net, const NetOptions& options);
  Workspace& workspace() { return workspace_; }
  Tensor& input(size_t place) { return inputs_[place]->tensor(); }  // by its place among the net's external inputs
  void run(uint64_t seed, int64_t iteration, TensorPacker* packer = nullptr, NetObserver* observer = nullptr);
  // Lets go of everything in the workspace.
  void clear();

 private:
  Workspace workspace_;
  Net net_;
  std::vector<Blob*> blobs_;  // all that the net names
  std::vector<Blob*> inputs_;
};

class NetRunners {
 public:
  std::unique_ptr<NetRunner> take(const NetDef& net, const NetOptions& options);
  void put_back(std::unique_ptr<NetRunner> runner);  // after clear()

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<NetRunner>> waiting_;
};

}  // namespace stepnet::autograd
