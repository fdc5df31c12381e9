// Reductions: where a training net adds its gradients up over the ranks.
//
// Gradients go in *buckets*, in the order in which the backward pass makes them: small messages cost as much as large
// ones, and one message of all gradients could only go when everything is computed. A bucket is started right behind
// the last operator that reads or writes one of its gradients, and finished at the end of the net, so that it moves
// while the backward pass goes on. A large gradient, or each of few, has a bucket of its own and moves where it is,
// uncopied, unless it is rounded or may share its bytes. A sparse gradient goes by itself, behind all starts: all ranks
// get its rows, and add them up. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recurrent/train/ranks.h"
#include "stepnet/net.h"

namespace stepnet {

struct ReductionOptions {
  std::string world;  // the blob of the common world
  DType move_as = DType::float32;
  int64_t bucket_bytes = int64_t{4} << 20;      // but for one gradient that has more by itself
  int64_t in_place_bytes = int64_t{256} << 10;  // a gradient from these on moves where it is
  // Of so many gradients all move where they are: copies are blocks of memory beside the net's own one, which then
  // takes more than values apart, and is not made.
  int few = 64;
};

// Adds StartAllreduce and FinishAllreduce for all gradients, AllgatherSlices and SparseToDense for sparse ones.
void add_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients, const ReductionOptions& options);

// Adds StartReduceScatter and FinishReduceScatter for all gradients; a bucket is a shard, which has those of one type
// and group only. Of sparse ones, each of which is a shard, the part is taken when all of it has been made.
std::vector<ParameterShard> add_sharded_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients,
                                                   int ranks, const ReductionOptions& options);

}  // namespace stepnet
