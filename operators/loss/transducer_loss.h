// The arithmetic of TransducerLoss, its gradient and its Hessian (transducer_loss.cc), of one sample, for the CPU and
// for GPUs. Threads: pure functions.
#pragma once

#include <string>

#include "operators/loss/alignments.h"

namespace stepnet {

struct TransducerArgs {
  int64_t blank = -1;
  std::string reduction;

  int64_t blank_of(int64_t classes) const { return blank < 0 ? classes + blank : blank; }
};

// logits [B, T, U + 1, C]; `width` is U + 1.
struct TransducerSizes {
  int64_t samples = 0, times = 0, width = 0, classes = 0;
  int64_t nodes() const { return samples * times * width; }

  static TransducerSizes of(const Call& call) {
    const Shape& x = call.in(0).shape();
    return {x[0], x[1], x[2], x[3]};
  }
};

// A sample: a lattice of nodes (t, u), at timestep t with u labels behind. From a node the blank leads to the next
// timestep, and the next label to u + 1; the blank at the last node ends an alignment.
template <class N, class T>
struct TransducerSample {
  Scores<N, T> scores;  // of its first node
  const N* log_sums = nullptr;
  Wholes labels;
  int64_t first = 0, blank = 0;  // its first label
  int64_t width = 0, classes = 0;
  int64_t times = 0, length = 0;  // timesteps and labels that count

  constexpr int64_t node(int64_t t, int64_t u) const { return t * width + u; }
  constexpr int64_t label(int64_t u) const { return labels[first + u]; }
  constexpr N log_p(int64_t at, int64_t c) const { return scores[at * classes + c] - log_sums[at]; }

  // Of all ways to a node, from the nodes before it.
  constexpr N alpha(int64_t t, int64_t u, const N* alphas) const {
    if (t == 0 && u == 0) return N{0};
    N by_blank = log_zero<N>(), by_label = by_blank;
    if (t > 0) by_blank = alphas[node(t - 1, u)] + log_p(node(t - 1, u), blank);
    if (u > 0) by_label = alphas[node(t, u - 1)] + log_p(node(t, u - 1), label(u - 1));
    return log_add(by_blank, by_label);
  }
  constexpr N total(const N* alphas) const {
    const int64_t last = node(times - 1, length);
    return alphas[last] + log_p(last, blank);
  }
  // Of all ways from a node to the end that begin with the blank, or with the label.
  constexpr N by_blank(int64_t t, int64_t u, const N* betas) const {
    if (t + 1 < times) return betas[node(t + 1, u)] + log_p(node(t, u), blank);
    return u == length ? log_p(node(t, u), blank) : log_zero<N>();
  }
  constexpr N by_label(int64_t t, int64_t u, const N* betas) const {
    return u < length ? betas[node(t, u + 1)] + log_p(node(t, u), label(u)) : log_zero<N>();
  }
  constexpr N beta(int64_t t, int64_t u, const N* betas) const {
    return log_add(by_blank(t, u, betas), by_label(t, u, betas));
  }
};

// Shares of all alignments: those that pass a node, and those that leave it by the blank and by the label.
template <class N>
struct NodeShares {
  N all, by_blank, by_label;
  int64_t blank, label;  // -1 if there is none

  template <class T>
  static constexpr NodeShares of(const TransducerSample<N, T>& sample, int64_t t, int64_t u, const N* alphas,
                                 const N* betas, N total) {
    const N alpha = alphas[sample.node(t, u)];
    return {exp_of(alpha + betas[sample.node(t, u)] - total), exp_of(alpha + sample.by_blank(t, u, betas) - total),
            exp_of(alpha + sample.by_label(t, u, betas) - total), sample.blank,
            u < sample.length ? sample.label(u) : -1};
  }
  // The gradient with respect to the score of a class with this probability.
  constexpr N of_class(int64_t c, N p) const {
    const N passing = product(all, p);
    return c == blank ? passing - by_blank : c == label ? passing - by_label : passing;
  }
};

}  // namespace stepnet
