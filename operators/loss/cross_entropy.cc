// CrossEntropy: Y[n] = -sum(label[n, j] log(max(X[n, j], 1e-20))), where X holds probabilities and label distributions.
//
// dX[n, j] = -dY[n] label[n, j] / max(X[n, j], 1e-20) and dlabel[n, j] = -dY[n] log(max(X[n, j], 1e-20)). Of X both
// read the values; dlabel does not read the labels. X below 1e-20 is taken as a constant. The
// derivatives of these follow from the formulas.

#include "operators/loss/cross_entropy.h"

#include <cmath>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/composing.h"

namespace stepnet::cpu_cross_entropy {
namespace {

void check_shapes(const ShapeCall& c) {
  if (c.known(0)) require(c.shape(0).rank() >= 1, "X must have a dimension for the classes, but is a scalar");
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "X is {}, but label {}", c.shape(0), c.shape(1));
}

void infer(const NoArgs&, ShapeCall& c) {
  check_shapes(c);
  if (c.known(0)) c.set(0, c.dtype(0), Shape{class_rows(c.shape(0)).count});
}

void infer_gradient(const NoArgs&, ShapeCall& c) {
  check_shapes(c);
  if (c.known(0) && c.known(2)) {
    const int64_t rows = class_rows(c.shape(0)).count;
    require(c.shape(2) == Shape{rows}, "dY is {}, but X {} has {} rows", c.shape(2), c.shape(0), rows);
  }
  c.set_like(0, 0);
  c.set_like(1, 0);
}

template <class T>
void forward(In<T> x, In<T> label, Out<T> y, Call& call) {
  const AxisRows rows = class_rows(call.in(0).shape());
  parallel_for(rows.count, 5.0 * static_cast<double>(rows.size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      double sum = 0;
      for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i)
        sum -= static_cast<double>(label[i]) * std::log(static_cast<double>(bounded(x[i])));
      y[n] = static_cast<T>(sum);
    }
  });
}

template <class T>
void gradient(In<T> x, In<T> label, In<T> dy, Out<T> dx, Out<T> dlabel, Call& call) {
  const AxisRows rows = class_rows(call.in(0).shape());
  const bool wants_dx = call.wants(0), wants_dlabel = call.wants(1);
  parallel_for(rows.count, 5.0 * static_cast<double>(rows.size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i) {
        if (wants_dx) dx[i] = -dy[n] * label[i] / bounded(x[i]);
        if (wants_dlabel) dlabel[i] = -dy[n] * std::log(bounded(x[i]));
      }
  });
}

int batch_rows(const NoArgs&, const ShapeCall& c) { return c.known(0) && c.shape(0).rank() > 1 ? 1 : 0; }

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<Value> d =
      f.ops("CrossEntropyGradient", {f.x("X"), f.x("label"), f.dy("Y")}, {}, {f.wants("X"), f.wants("label")});
  return {d[0], d[1]};
}

std::vector<Value> gradient_body(Formula& f) {
  using composing::at_least, composing::by_row, composing::div, composing::like_first, composing::map,
      composing::negative;
  const Value x = f.x("X"), dy = f.x("dY"), p = at_least(f, x, kLeastProbability);
  const auto by_dy = [&](Value v) { return negative(f, like_first(f, "Mul", v, dy, by_row())); };
  return {by_dy(div(f, f.x("label"), p)), by_dy(map(f, "Log", p))};
}

REGISTER(cross_entropy) {
  return op("CrossEntropy")
      .doc("Cross entropy of the probabilities in each row with a distribution; one below 1e-20 counts as 1e-20.")
      .input("X", "probabilities, [N, ...] with the classes in all dimensions but the first; [D] is one row")
      .input("label", "distributions, like X")
      .output("Y", "[N]")
      .shape(infer)
      .rowwise(batch_rows)
      .example({"X=3,4,0.1..1", "label=3,4,0..1"})
      .example({"X=2,2,2,0.1..1", "label=2,2,2,0..1"})
      .example({"X=4,0.1..1", "label=4,0..1"})
      .example({"X=2,0", "label=2,0"})
      .flops(flops_per_input(3))
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivatives({"X", "label"}, derivatives);
}

REGISTER(cross_entropy_gradient) {
  return op("CrossEntropyGradient")
      .doc("Gradients of CrossEntropy. An output that is not wanted is left out or \"\".")
      .input("X", "CrossEntropy's probabilities")
      .input("label", "its distributions")
      .input("dY", "gradient of its output")
      .output("dX", "like X")
      .optional()
      .output("dlabel", "like X")
      .optional()
      .uses({"X", "dY"})
      .shape(infer_gradient)
      .rowwise(batch_rows)
      .flops([](const auto&, const ShapeCall& c) { return 2 * (output_size(c, 0) + output_size(c, 1)); })
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_cross_entropy
