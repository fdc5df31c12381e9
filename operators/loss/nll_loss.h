// What NLLLoss, CrossEntropyLoss and their gradients (nll_loss.cc) share: their arguments, and the lines of scores that
// they are about, each with its label. For the CPU and for GPUs. Threads: pure functions.
#pragma once

#include <string>

#include "operators/loops/one_axis.h"
#include "operators/loss/labels.h"

namespace stepnet {

struct NllArgs {
  int64_t ignore_index = 0;
  float label_smoothing = 0;
  std::string reduction;
};

// X is [N, C, ...]: a line runs along its classes, and each of the other places has one.
inline OneAxis class_lines(const Shape& x) { return {x[0], x[1], x.size_between(2, x.rank())}; }

// How much each class counts in the loss of a line.
template <class T>
struct NllTargets {
  OneAxis lines;
  Wholes labels;
  const T* weights = nullptr;  // of classes; ones if null
  int64_t ignored = 0;
  double share = 1, spread = 0;  // of the label, and of every class

  NllTargets(const NllArgs& a, const OneAxis& of_lines, const Wholes& of_labels, const T* of_classes)
      : lines(of_lines),
        labels(of_labels),
        weights(of_classes),
        ignored(a.ignore_index),
        share(1 - static_cast<double>(a.label_smoothing)),
        spread(lines.size > 0 ? static_cast<double>(a.label_smoothing) / static_cast<double>(lines.size) : 0) {}

  constexpr bool is_class(int64_t n) const { return labels[n] >= 0 && labels[n] < lines.size; }
  constexpr bool counts(int64_t n) const { return labels[n] != ignored && is_class(n); }
  constexpr double weight(int64_t c) const { return weights ? static_cast<double>(weights[c]) : 1; }
  // What a line counts in the mean.
  constexpr double count(int64_t n) const { return counts(n) ? weight(labels[n]) : 0; }
};

}  // namespace stepnet
