// What the tests of operators/collective share: the ranks that run them, and nets on these.
//
// Threads: not for concurrent use, but for shared_world().
#pragma once

#include <string>

#include "operators/collective/world.h"
#include "stepnet/net.h"
#include "stepnet/text.h"

namespace stepnet::testing {

// One world of all ranks for the whole program, which the first call makes.
inline World& shared_world() {
  static const WorldPtr world = create_world(default_world_timeout());
  return *world;
}
inline int rank() { return shared_world().rank(); }
inline int ranks() { return shared_world().size(); }

// Runs operators, given as text, behind one that makes "world".
inline void run_on_world(const std::string& ops, Workspace& workspace) {
  RunContext run;
  run_net_once(parse_net_text("op { type: 'CreateCommonWorld' output: 'world' } " + ops), workspace, run);
}

// The sum of one number of each rank.
inline double sum_over_ranks(double value) {
  double sum = 0;
  shared_world().start_allreduce(&value, &sum, 1, DType::float64, ReduceOp::sum)->wait();
  return sum;
}

}  // namespace stepnet::testing
