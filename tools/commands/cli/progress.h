// The progress of a training run: one line with a bar that is drawn again and again on a terminal, plain lines every
// few seconds elsewhere. On standard error.
//
// Threads: for the main thread.
#pragma once

#include <string>

#include "stepnet/trainer.h"

namespace stepnet::tools {

class ProgressDisplay {
 public:
  ProgressDisplay(bool quiet, double wanted_seconds);
  ~ProgressDisplay();  // leaves the bar's line
  void show(const TrainProgress& progress);
  void line(const std::string& text);  // above the bar

 private:
  void draw(const TrainProgress& progress);
  void clear();

  bool quiet_, terminal_;
  double wanted_seconds_;
  double smooth_loss_ = 0;
  double next_ = 0;  // when to draw again
  bool drawn_ = false;
};

// "1:05", "2:00:07"
std::string clock_text(double seconds);

}  // namespace stepnet::tools
