// Random nets for campaigns: operators of many kinds, each where its input may come from anywhere before it, in place
// where schemas allow it, names written again, aliases, and names like those that the gradient and recompute passes
// make.
//
// Every operator of a net has run by the reference (tests/core/random_nets_reference.h) at each of the net's batch
// sizes, so a net is right unless a pass says why it is not.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "stepnet/random.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

class NetDice {
 public:
  explicit NetDice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return random_int(seed_, next_++, 0, n - 1); }
  bool chance(double p) { return random_uniform(seed_, next_++) < p; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

 private:
  uint64_t seed_, next_ = 0;
};

// What a net is fed. The size -1 stands for the batch.
struct NetFeed {
  std::string name;
  std::vector<int64_t> sizes = {};
  Tensor fixed = {};   // the same in every run; else float64, drawn anew
  bool grows = false;  // it has the batch in its shape
};

struct RandomNet {
  NetDef net;
  std::vector<NetFeed> feeds;
  std::vector<int64_t> batches;      // sizes at which the net is right
  std::vector<std::string> targets;  // float64 blobs to differentiate
  std::vector<std::string> wanted;   // float64 feeds, and at times others
  std::vector<std::string> given;    // by target: the name of its given gradient, or ""
};

RandomNet random_net(uint64_t seed);

// The same for the same seed.
Tensor feed_value(const NetFeed& feed, int64_t batch, uint64_t seed);

}  // namespace stepnet::testing
