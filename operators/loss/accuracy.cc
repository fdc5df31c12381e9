// Accuracy: the share of rows whose label is among the k classes with the greatest scores, a scalar of float; 0 if
// there are no rows. Of equal scores, the class with the smaller number comes first, and a NaN is greater than nothing
// and smaller than nothing.
//
// It counts, so it has no gradient.
#include "operators/loss/accuracy.h"
#include "core/operator/flops.h"
#include "operators/loss/labels.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_accuracy {
namespace {

void infer(const AccuracyArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) {
    const Shape &x = c.shape(0), &label = c.shape(1);
    require(x.rank() == 2, "X must be a score for each class in each row, [N, D], but is {}", x);
    require(label == Shape{x[0]} || label == Shape({x[0], 1}), "X is {}, so label must be [{}] or [{}, 1], but is {}",
            x, x[0], x[0], label);
  }
  c.set(0, DType::float32, Shape{});
}

template <class T>
void forward(const AccuracyArgs& a, In<T> x, const Tensor& labels, Out<float> y, Call& call) {
  const int64_t rows = call.in(0).dim(0), classes = call.in(0).dim(1);
  int64_t right = 0;
  with_labels(labels, classes, [&](auto label) {
    for (int64_t n = 0; n < rows; ++n)
      right += is_among_best(x.data() + n * classes, classes, static_cast<int64_t>(label[n]), a.top_k) ? 1 : 0;
  });
  y[0] = rows == 0 ? 0.0F : static_cast<float>(static_cast<double>(right) / static_cast<double>(rows));
}

REGISTER(accuracy) {
  return op<AccuracyArgs>("Accuracy")
      .doc("The share of rows whose label is among the classes with the greatest scores.")
      .arg("top_k", &AccuracyArgs::top_k, int64_t{1}, "how many of the greatest count", at_least(1))
      .input("X", "scores or probabilities, [N, D]")
      .input("label", "[N] or [N, 1], from 0 to D - 1")
      .types({DType::int32, DType::int64})
      .output("Y", "a scalar, from 0 to 1")
      .types({DType::float32})
      .shape(infer)
      .example({"X=4,3", "label=int32,4:2,0,1,1"})
      .example({"X=4,5", "label=int64,4,1:4,0,1,3"}, {"top_k=2"})
      .cpu(forward<float>, forward<double>)
      .no_gradient("it counts");
}

}  // namespace
}  // namespace stepnet::cpu_accuracy
