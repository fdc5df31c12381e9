// ConfusionMatrix and ScatterPlot: a metric's outcomes (recurrent/report/scores.h) as a table or a picture.
//
// Threads: as containers of the standard library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recurrent/report/scores.h"

namespace stepnet {

// How often targets of each class are predicted as each.
class ConfusionMatrix {
 public:
  static constexpr int64_t kMostDrawn = 50, kMost = 2000;  // classes

  explicit ConfusionMatrix(int64_t most = kMost) : most_(most) {}
  void add(const Outcome& outcome);  // throws Error: more classes than `most`
  int64_t count(int64_t target, int64_t predicted) const {
    return counts_[static_cast<size_t>(target * classes_ + predicted)];
  }
  // A row of names, then one for each target: its class, and how often each class was predicted.
  std::string csv() const;
  // A cell for each target (rows) and prediction (columns), the darker the larger its share of the row is.
  // Throws Error if there are more classes than are drawn, or no outcomes.
  std::string svg(const std::string& title) const;

 private:
  std::string cells(double top, double size) const;

  int64_t most_ = 0, classes_ = 0;
  std::vector<int64_t> counts_;
};

// Predictions over targets. Of more outcomes than can be drawn some are drawn at random, the same each time.
// Source: J. S. Vitter, Random sampling with a reservoir, 1985, algorithm R.
class ScatterPlot {
 public:
  void add(const Outcome& outcome);  // throws Error if one of the numbers is not finite

  int64_t outcomes() const { return outcomes_; }
  // With the line on which predictions equal targets. Throws Error if there were no outcomes.
  std::string svg(const std::string& title) const;

  static constexpr int64_t kMostDrawn = 5000;

 private:
  struct Point {
    double target = 0, prediction = 0;
  };

  int64_t outcomes_ = 0;
  std::vector<Point> points_;
};

}  // namespace stepnet
