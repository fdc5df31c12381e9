// What tests of recomputation share: training nets of a few lines, and a run of one with the allocator's counters.
//
// Threads: not for concurrent use; the counters are the process's.
#pragma once

#include <string>
#include <vector>

#include "core/passes/recompute.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

struct TrainingCase {
  std::string name;
  NetDef net;
  int first_gradient_op = 0;
  Feeds feeds;
  std::vector<std::string> trained;  // of the feeds, those that the net changes
  MemoryQuestion question;           // keeps the loss and all gradients of parameters
};

// The lines, which write the scalar "loss", their gradients with respect to `trained`, and a step of descent for each.
TrainingCase training_case(const std::string& name, const NetDef& forward, const Feeds& feeds,
                           const std::vector<std::string>& trained);
TrainingCase training_case(const std::string& name, const Lines& lines, const Feeds& feeds,
                           const std::vector<std::string>& trained);

// Example nets with random sizes: a deep chain with dropout, residual blocks, attention fed (x, x, x), LayerNorm and
// GELU, a diamond, and values that are written in place.
std::vector<TrainingCase> example_cases(uint64_t seed);
// That many layers of LayerNorm, two products with GELU between them, dropout and a sum with what the layer reads.
TrainingCase long_case(int layers, int64_t batch = 32, int64_t width = 16);
// A chain of products and functions whose widths are all different, so that hardly two segments cost the same.
TrainingCase uneven_case(int layers);
// Operators of many kinds on square matrices, each on what some before have written.
TrainingCase random_case(uint64_t seed, int operators);

struct TrainingRun {
  int64_t peak = 0;             // measured; bytes since before the feeds were there
  std::vector<Tensor> results;  // of two runs: the loss, all that is kept, and what was trained
};

TrainingRun run_training(const TrainingCase& c, const NetDef& net);

// "" if both have the same bits everywhere.
std::string first_difference(const TrainingCase& c, const TrainingRun& a, const TrainingRun& b);

}  // namespace stepnet::testing
