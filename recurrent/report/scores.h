// Scores: figures of predictions beside a loss, over all batches of a held-out part.
//
//   mean                 of the prediction's values, such as another loss; it has no target. A single value is taken
//   for
//                        the mean over a batch's samples
//   mean_absolute_error, mean_squared_error
//                        of predictions and targets with as many elements
//   r2                   1 - the sum of squared errors / the sum of squared distances of targets from their mean;
//                        nan if all targets are equal
//   Of classes: targets are whole numbers, and predictions have one score per class in their last dimension.
//   accuracy             the share of targets whose class has the highest score; the first of equal ones counts
//   top_K                the same for the K classes with the highest scores, such as top_5
//   precision, recall, f1
//                        of each class, and of these the mean over all classes that are predicted or targets; with as
//                        many predictions as targets, which are 0 or 1, those of class 1, predicted above 0.5. A share
//                        of nothing is 0
//   perplexity           the exponential of the mean cross entropy of targets and the softmax of the scores
//   bits                 the same mean, in bits
//   Others:
//   auc                  the area under the curve of true over false positives: targets are 0 or 1, and predictions
//                        any numbers that order them; equal ones count half; nan if a class is missing
//   edit_distance        whole numbers [samples, places], of which those below 0 do not count: the fewest insertions,
//                        deletions and changes that make the target of the prediction, over the length of targets
//
// A mask has an element for each target, which does not count where that is 0.
// Threads: as a container of the standard library.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/tensor.h"

namespace stepnet {

// Throws Error if there is no metric of this name.
void check_metric_name(const std::string& name);
bool is_mean(const std::string& name);  // a metric without a target
// Whether more is better, as of accuracy, and less of errors.
bool more_is_better(const std::string& name);

// One target that counts, and what is predicted: of so many classes two of them, or with 0 classes two numbers.
struct Outcome {
  double target = 0, prediction = 0;
  int64_t classes = 0;
};
using OutcomeFunction = std::function<void(const Outcome&)>;

// What a metric's outcomes are: of classes those of accuracy and top_K, precision, recall and f1, perplexity and bits;
// numbers those of mean_absolute_error, mean_squared_error and r2; others have none.
enum class OutcomeKind { none, classes, numbers };
OutcomeKind outcome_kind(const std::string& name);

class Score {
 public:
  explicit Score(std::string name);  // throws Error, see above

  // Calls it for each target that counts, from now on; then a score that is nan is an Error.
  void watch(OutcomeFunction outcome) { outcome_ = std::move(outcome); }

  const std::string& name() const { return name_; }
  // Tensors on the CPU, for so many samples; mask undefined: all counts. Throws Error: sizes or types that do not fit,
  // a target that is no class.
  void add(const Tensor& prediction, const Tensor& target, const Tensor& mask = {}, int64_t samples = 1);
  double value() const;  // nan before the first element

 private:
  // Hits, and wrong predictions and targets, of one class.
  struct Counts {
    double hits = 0, predicted = 0, targets = 0;
  };

  void add_classes(const Tensor& scores, const Tensor& target, const Tensor& mask);
  void add_class(const double* scores, int64_t classes, int64_t own);
  void add_numbers(const Tensor& prediction, const Tensor& target, const Tensor& mask);
  void add_distances(const Tensor& prediction, const Tensor& target);
  double of_classes() const;
  double area() const;

  std::string name_;
  OutcomeFunction outcome_;
  int64_t best_ = 0;  // of accuracy and top_K how many of the highest scores count
  double count_ = 0, hits_ = 0, sum_ = 0, absolute_ = 0, squared_ = 0;
  double mean_ = 0, spread_ = 0;  // of targets: their mean, and the sum of squared distances from it
  std::map<int64_t, Counts> classes_;
  bool two_ = false;                            // classes are 0 and 1, and the second one's figure is asked for
  std::vector<std::pair<double, bool>> order_;  // of auc: predictions, and whether the target is 1
};

}  // namespace stepnet
