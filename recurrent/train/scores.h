// Scores: figures of predictions beside a loss, over all batches of a held-out part.
//
//   accuracy             the share of targets, whole numbers, whose class has the highest score: predictions have one
//                        score per class in their last dimension; the first of equal ones counts
//   top_K                the same for the K classes with the highest scores, such as top_5
//   mean_absolute_error, mean_squared_error
//                        of predictions and targets with as many elements
//   r2                   1 - the sum of squared errors / the sum of squared distances of targets from their mean;
//                        nan if all targets are equal
// Threads: as a container of the standard library.
#pragma once

#include <string>

#include "stepnet/tensor.h"

namespace stepnet {

// Throws Error if there is no metric of this name.
void check_metric_name(const std::string& name);

class Score {
 public:
  explicit Score(std::string name);  // throws Error, see above

  const std::string& name() const { return name_; }
  // Tensors on the CPU. Throws Error: sizes or types that do not fit, a target that is no class.
  void add(const Tensor& prediction, const Tensor& target);
  double value() const;  // nan before the first element

 private:
  void add_classes(const Tensor& scores, const Tensor& target);
  void add_numbers(const Tensor& prediction, const Tensor& target);

  std::string name_;
  int64_t best_ = 0;  // how many of the highest scores count; 0: targets are numbers
  double count_ = 0, hits_ = 0, absolute_ = 0, squared_ = 0;
  double mean_ = 0, spread_ = 0;  // of targets: their mean, and the sum of squared distances from it
};

}  // namespace stepnet
