// CrossEntropy: Y[n] = -sum(label[n, j] log(max(X[n, j], 1e-20))), where X holds probabilities and label distributions.
//
// dX[n, j] = -dY[n] label[n, j] / max(X[n, j], 1e-20) and dlabel[n, j] = -dY[n] log(max(X[n, j], 1e-20)). Of X both
// read the values; dlabel does not read the labels. With u and v for the gradients of dX and dlabel, and X below 1e-20
// taken as a constant, the derivatives of that are dY (u label / X^2 - v / X) of X, -dY u / X of the labels, and -sum(u
// label / X + v log X) of dY.

#include "operators/loss/cross_entropy.h"

#include <cmath>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"

namespace stepnet {
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

// An empty u or v is zeros, and an empty output is not wanted.
template <class T>
void second_gradient(In<T> x, In<T> label, In<T> dy, In<T> u, In<T> v, Out<T> gx, Out<T> glabel, Out<T> gdy,
                     Call& call) {
  const AxisRows rows = class_rows(call.in(0).shape());
  parallel_for(rows.count, 10.0 * static_cast<double>(rows.size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      double sum = 0;
      for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i) {
        const T p = bounded(x[i]), of_x = u.empty() ? T(0) : u[i] / p, of_label = v.empty() ? T(0) : v[i];
        if (!gx.empty()) gx[i] = x[i] > T(kLeastProbability) ? dy[n] * (of_x * label[i] - of_label) / p : T(0);
        if (!glabel.empty()) glabel[i] = -dy[n] * of_x;
        if (!gdy.empty())
          sum -=
              static_cast<double>(of_x * label[i]) + static_cast<double>(of_label) * std::log(static_cast<double>(p));
      }
      if (!gdy.empty()) gdy[n] = static_cast<T>(sum);
    }
  });
}

void infer_second(const NoArgs& a, ShapeCall& c) {
  infer_gradient(a, c);
  for (const int i : {3, 4})
    if (c.known(0) && c.known(i))
      require(c.shape(0) == c.shape(i), "X is {}, but {} {}", c.shape(0), i == 3 ? "ddX" : "ddlabel", c.shape(i));
  c.set_like(2, 2);
}

std::vector<Gradient> second_derivatives(Formula& f) {
  const std::vector<Value> d =
      f.ops("CrossEntropySecondGradient", {f.x("X"), f.x("label"), f.x("dY"), f.dy("dX"), f.dy("dlabel")}, {},
            {f.wants("X"), f.wants("label"), f.wants("dY")});
  return {d[0], d[1], d[2]};
}

int batch_rows(const NoArgs&, const ShapeCall& c) { return c.known(0) && c.shape(0).rank() > 1 ? 1 : 0; }

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<Value> d =
      f.ops("CrossEntropyGradient", {f.x("X"), f.x("label"), f.dy("Y")}, {}, {f.wants("X"), f.wants("label")});
  return {d[0], d[1]};
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
      .derivatives({"X", "label", "dY"}, second_derivatives);
}

REGISTER(cross_entropy_second_gradient) {
  return op("CrossEntropySecondGradient")
      .doc("Gradients of CrossEntropyGradient. An output that is not wanted is left out or \"\".")
      .input("X", "CrossEntropy's probabilities")
      .input("label", "its distributions")
      .input("dY", "gradient of its output")
      .input("ddX", "gradient of CrossEntropyGradient's dX; zeros if left out")
      .optional()
      .input("ddlabel", "gradient of its dlabel; zeros if left out")
      .optional()
      .output("X_grad", "like X")
      .optional()
      .output("label_grad", "like X")
      .optional()
      .uses({"X", "dY", "ddX", "ddlabel"})
      .output("dY_grad", "like dY")
      .optional()
      .uses({"X", "label", "ddX", "ddlabel"})
      .shape(infer_second)
      .rowwise(batch_rows)
      .flops([](const auto&, const ShapeCall& c) {
        return input_size(c, 0) * (1 + 4 * int{c.wants(0)} + int{c.wants(1)} + 5 * int{c.wants(2)});
      })
      .cpu(second_gradient<float>, second_gradient<double>)
      .no_gradient("third derivatives of CrossEntropy are not written");
}

}  // namespace
}  // namespace stepnet
