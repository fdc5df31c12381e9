// Forward runs of an operator's example in one floating type, and comparisons of what they give.
//
// Threads: not for concurrent use.
#pragma once

#include <memory>
#include <string>

#include "core/gradcheck/runs.h"

namespace stepnet {

// Floating elements in another floating type; anything else as it is. A copy on the CPU.
Tensor in_type(DType dtype, const Tensor& value);

// A net bound to its feeds, all floating ones in one type.
class ForwardRuns {
 public:
  ForwardRuns(const GradientSubject& subject, DType dtype, uint64_t seed, Device device = {});

  NamedTensors run();           // all that the net's operators write, on the CPU
  NamedTensors run_over_nan();  // again, over outputs that are NaN

 private:
  void feed();

  const GradientSubject& subject_;
  DType dtype_;
  uint64_t seed_;
  Device device_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

// "" or where two values differ by more than `tolerance` times the largest element or 1; integers must be equal.
std::string difference(const Tensor& a, const Tensor& b, double tolerance);

// Whether an operator of the net does more than to compute its outputs.
bool has_side_effects(const NetDef& net);
// Outputs that are objects, such as what an operator keeps for its gradient, are each device's own business.
std::set<std::string> objects_of(const NetDef& net);

}  // namespace stepnet
