// The arithmetic of CTCLoss, its gradient and its Hessian (ctc_loss.cc), of one sample, for the CPU and for GPUs.
// Threads: pure functions.
#pragma once

#include <string>

#include "operators/loss/alignments.h"

namespace stepnet {

struct CtcArgs {
  int64_t blank = 0;
  bool zero_infinity = false;
  std::string reduction;
};

// logits [T, B, C] and targets [B, S].
struct CtcSizes {
  int64_t times = 0, samples = 0, classes = 0, places = 0;
  int64_t states() const { return 2 * places + 1; }  // at most

  static CtcSizes of(const Call& call) {
    const Shape &x = call.in(0).shape(), &targets = call.in(1).shape();
    return {x[0], x[1], x[2], targets[1]};
  }
};

// A sample: its scores, and its labels with a blank before, between and behind them, the states of an alignment.
template <class N, class T>
struct CtcSample {
  Scores<N, T> scores;  // of its first timestep
  int64_t stride = 0;   // from one timestep to the next
  const N* log_sums = nullptr;
  int64_t log_sum_stride = 0;
  Wholes labels;
  int64_t first = 0, blank = 0;   // its first label
  int64_t times = 0, length = 0;  // timesteps and labels that count

  constexpr int64_t states() const { return 2 * length + 1; }
  constexpr int64_t label(int64_t s) const { return s % 2 == 0 ? blank : labels[first + s / 2]; }
  // Whether a label follows another one, two states before, without the blank between them.
  constexpr bool skips(int64_t s) const { return s % 2 == 1 && s >= 3 && label(s) != label(s - 2); }
  constexpr N log_share(int64_t t, int64_t c) const { return scores[t * stride + c] - log_sums[t * log_sum_stride]; }
  constexpr N log_p(int64_t t, int64_t s) const { return log_share(t, label(s)); }

  // Before the first timestep an alignment is in the first blank, and behind the last one in the last.
  constexpr N before_all(int64_t s) const { return s == 0 ? N{0} : log_zero<N>(); }
  constexpr N after_all(int64_t s) const { return s == states() - 1 ? N{0} : log_zero<N>(); }
  // Of all beginnings of alignments that end in state s at timestep t, from those of the timestep before.
  constexpr N alpha(int64_t t, int64_t s, const N* before) const {
    const N none = log_zero<N>();
    return log_add(before[s], s > 0 ? before[s - 1] : none, skips(s) ? before[s - 2] : none) + log_p(t, s);
  }
  // Of all ends of alignments behind state s, from those of the timestep after, each with the probability there.
  constexpr N beta(int64_t s, const N* after) const {
    const N none = log_zero<N>();
    return log_add(after[s], s + 1 < states() ? after[s + 1] : none,
                   s + 2 < states() && skips(s + 2) ? after[s + 2] : none);
  }
  // Of all alignments, from those that end in each state.
  constexpr N total(const N* last) const {
    return log_add(last[states() - 1], length > 0 ? last[states() - 2] : log_zero<N>());
  }
};

// What the gradient of a sample's loss is multiplied by; `of_loss` is what arrives at its loss, or at the mean.
constexpr double ctc_factor(LossReduction reduction, double of_loss, int64_t samples, int64_t length) {
  if (reduction != LossReduction::mean) return of_loss;
  return of_loss / static_cast<double>(samples) / static_cast<double>(length > 0 ? length : 1);
}

// The part of a sample's loss in the output.
constexpr double ctc_part(LossReduction reduction, double loss, int64_t length) {
  return reduction == LossReduction::mean ? loss / static_cast<double>(length > 0 ? length : 1) : loss;
}

}  // namespace stepnet
