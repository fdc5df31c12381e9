// What the bodies (OpBuilder::composed) of SoftmaxWithLoss' and SpatialSoftmaxWithLoss' gradients share: the loss's
// lines, targets, weights and c = scale dloss / sum(w) as values of a formula. Threads: as a Formula.
#pragma once

#include <vector>

#include "operators/loops/composing.h"
#include "operators/loss/softmax_loss.h"

namespace stepnet::composing {

// Lines run along dimension 1 of values [N, D, ...], and what is one number for each line is [N, 1, ...].
struct LossBody {
  Formula& f;
  const LossArgs& a;
  Value scores;            // or probabilities
  Value shares;            // the targets' distributions, of which a label is one
  Value counts, weights;   // of each line: 1, or 0 of one that has no label, if there may be any such; its weight
  Value by_total, factor;  // 1 / sum(w), or 0, and c

  LossBody(Formula& formula, const LossArgs& args, Value of_scores, Value target, Value given_weights, Value dloss)
      : f(formula), a(args) {
    scores = a.spatial ? of_scores : matrix(f, of_scores, a.axis);
    const Value line = line_sums(scores);
    weights = given_weights.defined() ? reshaped(f, given_weights, line) : fill(f, line, 1);
    if (a.label_prob)
      shares = reshaped(f, target, scores);
    else
      set_labels(f.op("CastLike", {reshaped(f, target, line), scores}));
    const Value total = f.op("SumElements", {weights}), none = zeros(f, total);
    const Value counted = f.op("NE", {total, none}), one = fill(f, total, 1);
    by_total = where(f, counted, div(f, one, where(f, counted, total, one)), none);
    factor = scaled(f, like_first(f, "Mul", dloss, by_total, laid_over()), a.scale);
  }

  Value line_sums(Value v) const { return f.op("ReduceSum", {v}, {make_arg("axes", std::vector<int64_t>{1})}); }
  // v times, or less, a number for each line, or one for all.
  Value times(Value v, Value numbers) const { return like_first(f, "Mul", v, numbers, laid_over()); }
  Value less(Value v, Value numbers) const { return like_first(f, "Sub", v, numbers, laid_over()); }

 private:
  // A label that is no class, -1, gives a line of zeros.
  void set_labels(Value labels) {
    const Value classes = map(f, "Cumsum", fill(f, scores, 1), {make_arg("axis", 1), make_arg("exclusive", true)});
    shares = f.same_shape(f.op("CastLike", {f.op("EQ", {classes, labels}, laid_over()), scores}), scores);
    if (!a.spatial) return;
    counts = f.same_shape(f.op("CastLike", {f.op("GE", {labels, zeros(f, labels)}), scores}), weights);
    weights = mul(f, weights, counts);
  }
};

}  // namespace stepnet::composing
