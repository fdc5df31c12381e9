// CrossEntropy: Y[n] = -sum(label[n, j] log(max(X[n, j], 1e-20))), where X holds probabilities and label distributions.
//
// dX[n, j] = -dY[n] label[n, j] / max(X[n, j], 1e-20) and dlabel[n, j] = -dY[n] log(max(X[n, j], 1e-20)). Of X both
// read the values; dlabel does not read the labels.

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "operators/axis_rows.h"

namespace stepnet {
namespace {

constexpr double kLeast = 1e-20;

// One dimension is one row.
Rows rows_of(const Shape& x) { return x.rank() == 1 ? Rows{1, x[0]} : Rows{x[0], x.size_between(1, x.rank())}; }

void check_shapes(const ShapeCall& c) {
  if (c.known(0)) require(c.shape(0).rank() >= 1, "X must have a dimension for the classes, but is a scalar");
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "X is {}, but label {}", c.shape(0), c.shape(1));
}

void infer(const NoArgs&, ShapeCall& c) {
  check_shapes(c);
  if (c.known(0)) c.set(0, c.dtype(0), Shape{rows_of(c.shape(0)).count});
}

void infer_gradient(const NoArgs&, ShapeCall& c) {
  check_shapes(c);
  if (c.known(0) && c.known(2)) {
    const int64_t rows = rows_of(c.shape(0)).count;
    require(c.shape(2) == Shape{rows}, "dY is {}, but X {} has {} rows", c.shape(2), c.shape(0), rows);
  }
  c.set_like(0, 0);
  c.set_like(1, 0);
}

template <class T>
T bounded(T probability) {
  return std::max(probability, T(kLeast));
}

template <class T>
void forward(In<T> x, In<T> label, Out<T> y, Call& call) {
  const Rows rows = rows_of(call.in(0).shape());
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
  const Rows rows = rows_of(call.in(0).shape());
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

REGISTER(cross_entropy) {
  return op("CrossEntropy")
      .doc("Cross entropy of the probabilities in each row with a distribution.")
      .input("X", "probabilities, [N, ...] with the classes in all dimensions but the first; [D] is one row")
      .input("label", "distributions, like X")
      .output("Y", "[N]")
      .shape(infer)
      .flops(
          [](const NoArgs&, const ShapeCall& c) { return c.known(0) ? 3 * static_cast<double>(c.shape(0).size()) : 0; })
      .rowwise(batch_rows)
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
      .cpu(gradient<float>, gradient<double>)
      .no_gradient("second derivatives of CrossEntropy are not written");
}

}  // namespace
}  // namespace stepnet
