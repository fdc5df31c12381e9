// LabelCrossEntropy: Y[n] = -log(max(X[n, label[n]], 1e-20)), where X holds probabilities.
//
// dX[n, label[n]] = -dY[n] / max(X[n, label[n]], 1e-20), and 0 elsewhere. It reads X, the labels and dY. X no greater
// than 1e-20 is taken as a constant. Its derivatives follow from the formula.

#include <algorithm>
#include <cmath>

#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "operators/loss/cross_entropy.h"
#include "operators/loss/labels.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_label_cross_entropy {
namespace {

void check_shapes(const ShapeCall& c) {
  require(c.shape(0).rank() >= 1, "X must have a dimension for the classes, but is a scalar");
  const Shape& label = c.shape(1);
  const int64_t rows = class_rows(c.shape(0)).count;
  require(label == Shape{rows} || label == Shape({rows, 1}), "X is {}, so label must be [{}] or [{}, 1], but is {}",
          c.shape(0), rows, rows, label);
}

void infer(const NoArgs&, ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return;
  check_shapes(c);
  c.set(0, c.dtype(0), Shape{class_rows(c.shape(0)).count});
}

void infer_gradient(const NoArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) check_shapes(c);
  if (c.known(0) && c.known(2)) {
    const int64_t rows = class_rows(c.shape(0)).count;
    require(c.shape(2).size() == rows, "dY is {}, but X {} has {} rows", c.shape(2), c.shape(0), rows);
  }
  c.set_like(0, 0);
}

template <class T>
void forward(const Tensor& xs, const Tensor& labels, Out<T> y) {
  const T* x = xs.data<T>();
  const AxisRows rows = class_rows(xs.shape());
  with_labels(labels, rows.size, [&](auto label) {
    for (int64_t n = 0; n < rows.count; ++n) y[n] = -std::log(bounded(x[n * rows.size + label[n]]));
  });
}

template <class T>
void gradient(const Tensor& xs, const Tensor& labels, const Tensor& dys, Out<T> dx) {
  const T *x = xs.data<T>(), *dy = dys.data<T>();
  const AxisRows rows = class_rows(xs.shape());
  with_labels(labels, rows.size, [&](auto label) {
    std::fill(dx.begin(), dx.end(), T(0));
    for (int64_t n = 0; n < rows.count; ++n) {
      const int64_t at = n * rows.size + label[n];
      dx[at] = -dy[n] / bounded(x[at]);
    }
  });
}

int batch_rows(const NoArgs&, const ShapeCall& c) { return c.known(0) && c.shape(0).rank() > 1 ? 1 : 0; }

// Of ones the gradient is -1 at the labels and 0 elsewhere.
std::vector<Value> gradient_body(Formula& f) {
  using composing::at_least, composing::by_row, composing::div, composing::fill, composing::like_first;
  const Value x = f.x("X"), dy = f.x("dY");
  const Value minus_here =
      f.same_shape(f.op("LabelCrossEntropyGradient", {fill(f, x, 1), f.x("label"), fill(f, dy, 1)}), x);
  return {like_first(f, "Mul", div(f, minus_here, at_least(f, x, kLeastProbability)), dy, by_row())};
}

REGISTER(label_cross_entropy) {
  return op("LabelCrossEntropy")
      .doc("Negative logarithm of the probability of each row's label; one below 1e-20 counts as 1e-20.")
      .input("X", "probabilities, [N, ...] with the classes in all dimensions but the first; [D] is one row")
      .input("label", "[N] or [N, 1], from 0 to the number of classes - 1")
      .types({DType::int32, DType::int64})
      .output("Y", "[N]")
      .shape(infer)
      .rowwise(batch_rows)
      .example({"X=3,4,0.1..1", "label=int32,3:2,0,3"})
      .example({"X=2,2,2,0.1..1", "label=int64,2,1:3,1"})
      .example({"X=4,0.1..1", "label=int32,1:2"})
      .example({"X=0,3", "label=int32,0"})
      .flops(flops_per_output(1))
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("LabelCrossEntropyGradient", {f.x("X"), f.x("label"), f.dy("Y")});
      });
}

REGISTER(label_cross_entropy_gradient) {
  return op("LabelCrossEntropyGradient")
      .doc("Gradient of LabelCrossEntropy.")
      .input("X", "LabelCrossEntropy's probabilities")
      .input("label", "its labels")
      .types({DType::int32, DType::int64})
      .input("dY", "gradient of its output")
      .output("dX", "like X")
      .shape(infer_gradient)
      .rowwise(batch_rows)
      .flops(flops_per_input(1, 2))
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_label_cross_entropy
