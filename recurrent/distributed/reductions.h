// Reductions: where a training net adds its gradients up over the ranks.
//
// Gradients go in *buckets*, in the order in which the backward pass makes them: small messages cost as much as large
// ones, and one message of all gradients could only go when everything is computed. A bucket is started right behind
// the last operator that reads or writes one of its gradients, and finished at the end of the net, so that it moves
// while the backward pass goes on. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/net.h"
#include "stepnet/op_spec.h"

namespace stepnet {

struct ReducedGradient {
  std::string name, parameter;  // which has its type and shape
  TensorType type;
};

// So many bytes, but for one gradient that has more by itself.
constexpr int64_t kBucketBytes = int64_t{4} << 20;

// Adds StartAllreduce and FinishAllreduce for all gradients; `world`: the blob of the common world.
void add_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients, const std::string& world,
                    int64_t bucket_bytes = kBucketBytes);

}  // namespace stepnet
