// ViterbiPath: of all paths through D labels in N steps, the one of the greatest score: the sum of PREDICTIONS[n,
// label] over the steps and of TRANSITIONS[label, next label] between them. Of equal ones the label of the lower index
// counts.
//
// best[n, j] = PREDICTIONS[n, j] + max over i of best[n - 1, i] + TRANSITIONS[i, j]; the path is followed backwards. No
// derivative: labels are integers.

#include <algorithm>

#include "core/operator/flops.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_viterbi_path {
namespace {

void infer(const NoArgs&, ShapeCall& c) {
  if (c.known(0))
    require(c.shape(0).rank() == 2 && c.shape(0)[1] > 0, "predictions must be [N, D] for at least one label, but is {}",
            c.shape(0));
  if (c.known(0) && c.known(1))
    require(c.shape(1) == Shape({c.shape(0)[1], c.shape(0)[1]}), "transitions is {}, but predictions {} has {} labels",
            c.shape(1), c.shape(0), c.shape(0)[1]);
  if (c.known(0)) c.set(0, DType::int32, Shape{c.shape(0)[0]});
}

template <class T>
void forward(In<T> predictions, In<T> transitions, Out<int32_t> path, Call& call) {
  const int64_t steps = call.in(0).dim(0), labels = call.in(0).dim(1);
  if (steps == 0) return;
  std::vector<T> best(predictions.begin(), predictions.begin() + labels), next(best.size());
  std::vector<int32_t> from(static_cast<size_t>(steps * labels));
  for (int64_t n = 1; n < steps; ++n) {
    for (int64_t j = 0; j < labels; ++j) {
      int64_t chosen = 0;
      for (int64_t i = 1; i < labels; ++i)
        if (best[i] + transitions[i * labels + j] > best[chosen] + transitions[chosen * labels + j]) chosen = i;
      from[n * labels + j] = static_cast<int32_t>(chosen);
      next[j] = best[chosen] + transitions[chosen * labels + j] + predictions[n * labels + j];
    }
    std::swap(best, next);
  }
  path[steps - 1] = static_cast<int32_t>(std::max_element(best.begin(), best.end()) - best.begin());
  for (int64_t n = steps - 1; n > 0; --n) path[n - 1] = from[n * labels + path[n]];
}

// A sum for each pair of labels, and one for each label, in all steps but the first.
double flops(const NoArgs&, const ShapeCall& c) {
  if (!c.known(0) || c.shape(0)[0] == 0) return 0;
  const auto labels = static_cast<double>(c.shape(0)[1]);
  return (static_cast<double>(c.shape(0)[0]) - 1) * labels * (labels + 1);
}

// The scores of all labels at all steps, and where each came from.
std::vector<int64_t> gpu_workspace(const NoArgs&, const Call& c) {
  const int64_t scores = c.in(0).size();
  return {static_cast<int64_t>(dtype_size(c.in(0).dtype())) * scores, static_cast<int64_t>(sizeof(int32_t)) * scores};
}

REGISTER(viterbi_path) {
  return op("ViterbiPath")
      .doc("The path of labels with the greatest score, by the scores of labels and of transitions between them.")
      .input("predictions", "[N, D], the score of each label at each step")
      .input("transitions", "[D, D], the score of going from the label of a row to that of a column")
      .output("viterbi_path", "[N], the labels, from 0 to D - 1")
      .types({DType::int32})
      .shape(infer)
      .flops(flops)
      .gpu_workspace(gpu_workspace)
      .cpu(forward<float>, forward<double>)
      .stop_gradient()
      .example({"predictions=4,3", "transitions=3,3"})
      .example({"predictions=1,2", "transitions=2,2"})
      .example({"predictions=0,2", "transitions=2,2"});
}

}  // namespace
}  // namespace stepnet::cpu_viterbi_path
