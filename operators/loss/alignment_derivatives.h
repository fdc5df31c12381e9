// The derivatives of losses that are summed over alignments, CTCLoss and TransducerLoss: the gradient is linear in what
// arrives at the loss, and the Hessian symmetric.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "stepnet/formula.h"

namespace stepnet {

// The operators TYPE, TYPEGradient and TYPEHessian, whose inputs begin alike.
struct AlignmentLoss {
  std::string type;
  std::vector<std::string> inputs;  // the logits first
  std::vector<int64_t> axes;        // of the logits, all but that of samples

  std::vector<Value> values(Formula& f) const;

  // The gradient with respect to dloss of <y, u>, where y is the result of TYPEGradient or, with `more`, TYPEHessian:
  // for each sample, or for all, the sum of u times what y is for a dloss of 1.
  Value by_dloss(Formula& f, bool each_sample, const std::vector<Value>& more, Value u) const;

  // Times a gradient it is the gradient with respect to what it is multiplied by.
  Value times_hessian(Formula& f, Value v) const;
};

}  // namespace stepnet
