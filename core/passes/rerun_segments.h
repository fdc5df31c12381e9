// Segments: runs of operators of a net's forward part, whose values the backward part finds kept, or computed again.
//
// In a kept segment, every value that the backward part reads stays. In one that is run again, only those stay that
// operators behind the segment read; the others are dropped after their last reader in the forward part, and right
// before the first backward operator that reads one, the operators that make them run once more, from values that stay.
// Values that cannot be made again stay in either case: of operators that are `fixed`, and those that are overwritten
// after the forward part or read there by an operator on blobs.
// Threads: pure functions; RerunCosts is immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "core/passes/memory_values.h"

namespace stepnet {

struct Segment {
  int begin = 0, end = 0;  // operators of the forward part
  bool again = false;
};

// What running a segment again means.
struct Rerun {
  bool possible = false;     // false also if nothing would be dropped
  int before = 0;            // the backward operator that it runs right before
  std::vector<int> ops;      // that run again, rising
  std::vector<int> dropped;  // values that the backward part reads from the second run, rising
  std::vector<int> sources;  // values that it reads and that stay until then, rising
};

Rerun plan_rerun(const MemoryValues& net, int begin, int end);

struct RerunCost {
  bool possible = true;
  int64_t peak =
      0;  // the most bytes while it runs, forward or backward, beside those that last and those kept before it
  int64_t kept = 0;  // bytes that stay because of it while segments behind it run, forward and backward
  double flops = 0;  // of operators that run again
};

// Costs of segments on their own. The sum over all segments of a net, of those kept before a segment and its own peak,
// is the net's peak, if every backward operator reads values of the forward operator that it is for, in reverse order,
// as in what add_gradient_operators appends. It is an upper bound where a value with readers in several segments is
// dead before the segments behind the last one run, or is what several segments run again from.
class RerunCosts {
 public:
  explicit RerunCosts(const MemoryValues& net);

  RerunCost cost(const Segment& segment) const;
  // Bytes that are there beside the values of the forward part after the last of these has been read.
  int64_t peak_afterwards() const;
  // Bytes of the values that operators before read and operators from there on read as well.
  int64_t crossing(int op) const;

 private:
  const MemoryValues& net_;
  std::vector<int64_t> forward_live_;   // per forward operator: bytes of its part's storages, if nothing stays
  std::vector<int64_t> backward_live_;  // per operator: bytes of storages that the rest of the net makes
  std::vector<int64_t> between_live_;   // per operator: those of these that live before and in it
  std::vector<int> settled_;            // per forward operator: where everything that it and later ones write is read
  std::vector<std::vector<int>> crossing_;  // per forward operator: values of before that it or later ones read
};

}  // namespace stepnet
