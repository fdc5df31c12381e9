// HeldOut: the part of the data that is only predicted.
//
// Threads: one thread at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stepnet {

class HeldOut {
 public:
  virtual ~HeldOut() = default;
  virtual double loss() = 0;  // the mean over all that is predicted
  // Seconds that loss() will take, from running a few batches.
  virtual double estimate_seconds() = 0;
  // Metrics of the last loss(), in the order in which the model names them.
  virtual std::vector<std::pair<std::string, double>> scores() const { return {}; }
};

}  // namespace stepnet
