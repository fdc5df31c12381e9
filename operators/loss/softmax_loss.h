// What SoftmaxWithLoss, SpatialSoftmaxWithLoss and their gradients share: their arguments, and the lines of scores that
// they are about, each with its target and weight. Threads: pure functions.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/compute/vector_math.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/one_axis.h"

namespace stepnet {

struct LossArgs {
  bool label_prob = false;
  float scale = 1;
  int32_t axis = 1;
  bool only_loss = false;
  bool spatial = false;
};

struct SpatialLossArgs : LossArgs {
  std::string order;
  SpatialLossArgs() { spatial = true; }
};

// A line runs over the classes; there are as many as rows before the axis, or spatial places.
inline OneAxis loss_lines(const LossArgs& a, const Shape& x) {
  if (!a.spatial) {
    const AxisRows rows = rows_of(a, x);
    return {rows.count, rows.size, 1};
  }
  require(x.rank() >= 2, "X is {}, but must be [N, D, ...], with the classes in dimension 1", x);
  return {x[0], x[1], x.size_between(2, x.rank())};
}

inline constexpr double kSumError = 1e-4;  // of a distribution
inline constexpr int64_t kIgnored = -1;    // the label of a place that has none; of a spatial loss only

// Inputs `t` and, if that is not -1, `weights`, against the X of shape `x`.
inline void check_targets(const LossArgs& a, const ShapeCall& c, const Shape& x, DType type, int t, int weights) {
  const OneAxis lines = loss_lines(a, x);
  const int64_t values = a.label_prob ? lines.lines() * lines.size : lines.lines();
  if (c.known(t)) {
    if (a.label_prob) {
      require(c.dtype(t) == type, "T must be distributions of X's type (label_prob is set), but is {}", c.in(t));
    } else if (is_floating(c.dtype(t))) {
      throw Error(fmt::format("T must be int32 or int64 labels, but is {}", c.in(t)),
                  "let the model's data say type: \"int32\", or put a Cast before it");
    }
    require(c.shape(t).size() == values, "T is {}, but X {} has {} rows of {} classes, which need {} values",
            c.shape(t), x, lines.lines(), lines.size, values);
  }
  if (weights >= 0 && c.known(weights))
    require(c.shape(weights).size() == lines.lines(), "weights is {}, but X {} has {} rows", c.shape(weights), x,
            lines.lines());
}

// The gradient's inputs are X, T, [weights,] P, dloss.
struct GradientInputs {
  int weights, p, dloss;
};
inline GradientInputs gradient_inputs(int count) {
  return count == 5 ? GradientInputs{2, 3, 4} : GradientInputs{-1, 2, 3};
}

// The targets and weights of lines. The constructor throws Error if a label is no class.
template <class T>
class LossTargets {
 public:
  LossTargets(const LossArgs& a, const OneAxis& lines, const Tensor& target, In<T> weights)
      : size_(lines.size), count_(lines.lines()), distributions_(a.label_prob), weights_(weights) {
    if (distributions_) {
      shares_ = target.data<T>();
      return;
    }
    if (target.dtype() == DType::int32) {
      short_labels_ = target.data<int32_t>();
    } else {
      labels_ = target.data<int64_t>();
    }
    for (int64_t n = 0; n < count_; ++n)
      if (const int64_t at = label(n); (at < 0 || at >= size_) && !(a.spatial && at == kIgnored))
        fail("the label of row {} is {}, but must be in 0..{}{}", n, at, size_ - 1, a.spatial ? ", or -1" : "");
  }

  bool distributions() const { return distributions_; }
  bool ignored(int64_t n) const { return !distributions_ && label(n) == kIgnored; }
  const T* shares(int64_t n) const { return shares_ + n * size_; }  // of each class; of distributions
  int64_t label(int64_t n) const { return short_labels_ ? int64_t{short_labels_[n]} : labels_[n]; }
  double weight(int64_t n) const { return ignored(n) ? 0 : weights_.empty() ? 1 : static_cast<double>(weights_[n]); }
  double share(int64_t n, int64_t j) const {
    return distributions_ ? static_cast<double>(shares_[n * size_ + j]) : label(n) == j ? 1 : 0;
  }
  double shares_sum(int64_t n) const {
    return distributions_ ? vec_sum(In<T>(shares_ + n * size_, static_cast<size_t>(size_))) : 1;
  }
  // In a fixed order, whatever the number of threads.
  double weight_sum() const {
    double sum = 0;
    for (int64_t n = 0; n < count_; ++n) sum += weight(n);
    return sum;
  }
  // The mean of one value per line, weighted; 0 if the weights sum to 0.
  double mean(std::span<const double> values) const {
    double sum = 0;
    for (int64_t n = 0; n < count_; ++n) sum += weight(n) * values[n];
    const double total = weight_sum();
    return total != 0 ? sum / total : 0;
  }

 private:
  int64_t size_, count_;
  bool distributions_;
  In<T> weights_;
  const T* shares_ = nullptr;
  const int32_t* short_labels_ = nullptr;
  const int64_t* labels_ = nullptr;
};

}  // namespace stepnet
