// Scaling plan: how long a training step takes on more ranks, from figures of one and of the network.
//
// All ranks compute alike, each on a part of the batch that is as large as one rank's alone (weak scaling). Gradients
// move in buckets (recurrent/distributed/reductions.h), one after the other, each once it is final and all ranks have
// said what they are about to do; what follows the passes waits for the last of them. The times of collective
// operations are those of R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations
// in MPICH, International Journal of High Performance Computing Applications 19(1), 2005, without what adding up takes.
// For n bytes on p ranks, with the latency a of a message and b seconds per byte:
//   ring                2 (p - 1) a + 2 n b (p - 1) / p
//   recursive doubling  s (a + n b), s = lg p, or floor(lg p) + 2 where p is no power of 2
// Of the two each bucket takes the faster one. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace stepnet {

struct ScalingBucket {
  double ready = 0;  // seconds from the beginning of the step until its last gradient is final
  int64_t bytes = 0;
};

// On one rank.
struct ScalingStep {
  double passes = 0;                   // seconds of the forward and the backward pass
  double update = 0;                   // seconds of what waits for the sums
  std::vector<ScalingBucket> buckets;  // in the order in which they are ready
};

// Of one rank's connection, which sends and receives at the same time.
struct ScalingNetwork {
  double bandwidth = 0;  // bytes per second
  double latency = 0;    // seconds of a message
};

enum class AllreduceAlgorithm : int8_t { ring, doubling };
double allreduce_seconds(AllreduceAlgorithm algorithm, int64_t bytes, int64_t ranks, const ScalingNetwork& network);

struct ScalingRow {
  int64_t ranks = 1;
  int by_ring = 0, by_doubling = 0;  // buckets
  double reduction = 0;              // seconds that data moves, all buckets together
  double exposed = 0;                // seconds that the step is longer than on one rank
  double step = 0;                   // seconds
  double hidden = 1;                 // the share of the reduction during which the passes go on
  double efficiency = 1;             // the step on one rank by that on so many
};

// Throws Error for figures that make no sense, such as a bandwidth of 0.
ScalingRow plan_scaling(const ScalingStep& step, const ScalingNetwork& network, int64_t ranks);

// 1, 2, 4, ... up to `most`, and that itself.
std::vector<int64_t> scaling_ranks(int64_t most);

}  // namespace stepnet
