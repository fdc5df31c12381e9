// Runs of nets whose arithmetic is counted, operator by operator, by the references of tests/operators/flops_*.cc.
//
// Threads: not for concurrent use.
#pragma once

#include <map>
#include <string>

#include "stepnet/proto/net.pb.h"
#include "stepnet/tensor.h"

namespace stepnet::testing {

struct CountedRun {
  std::string problems;  // "", or where a registration's FLOPs are not those counted, or a reference computes others
  double flops = 0;      // counted; without those of nets inside operators
  std::map<std::string, Tensor> blobs;
};

CountedRun run_counted(const NetDef& def, const std::map<std::string, Tensor>& feeds);

}  // namespace stepnet::testing
