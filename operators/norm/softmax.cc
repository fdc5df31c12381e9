// Softmax: each row of exponentials divided by its sum. X is flattened before `axis`, so a row is everything from that
// axis on.
//
// dX = Y (dY - sum(Y dY)) per row. It reads Y, not X. That is the product of a symmetric matrix with dY, so its
// derivative of dY is itself; that of Y follows from the formula.

#include "operators/norm/softmax.h"

#include <functional>

#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/composing.h"

namespace stepnet::cpu_softmax {
namespace {

template <class T>
void softmax_row(In<T> x, Out<T> y) {
  const T most = vec_max(x);
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] - most;
  vec_exp(y, y);
  const T scale = static_cast<T>(1 / vec_sum(In<T>(y)));
  for (T& value : y) value *= scale;
}

template <class T>
void forward(const SoftmaxArgs& a, In<T> x, Out<T> y, Call& call) {
  const AxisRows rows = rows_of(a, call.in(0).shape());
  if (rows.size == 0) return;
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      softmax_row(x.subspan(r * rows.size, rows.size), y.subspan(r * rows.size, rows.size));
  };
  parallel_for(rows.count, 2.0 * static_cast<double>(rows.size), std::ref(range));
}

template <class T>
void gradient(const SoftmaxArgs& a, In<T> y, In<T> dy, Out<T> dx, Call& call) {
  const AxisRows rows = rows_of(a, call.in(0).shape());
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * rows.size;
      double dot = 0;
      for (int64_t i = 0; i < rows.size; ++i) dot += static_cast<double>(y[at + i]) * static_cast<double>(dy[at + i]);
      for (int64_t i = 0; i < rows.size; ++i) dx[at + i] = y[at + i] * (dy[at + i] - static_cast<T>(dot));
    }
  };
  parallel_for(rows.count, 1.5 * static_cast<double>(rows.size), std::ref(range));
}

void infer(const SoftmaxArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  canonical_axis(a.axis, c.shape(0).rank());
  c.set_like(0, 0);
}

void infer_gradient(const SoftmaxArgs& a, ShapeCall& c) {
  if (c.known(0) && c.known(1))
    require(c.shape(0).size() == c.shape(1).size(), "Y is {}, but dY {}", c.shape(0), c.shape(1));
  infer(a, c);
}

std::vector<Value> gradient_body(Formula& f) {
  using composing::by_row, composing::like_first, composing::matrix, composing::mul, composing::reshaped,
      composing::row_sums;
  const Value y = matrix(f, f.x("Y"), f.args<SoftmaxArgs>().axis), dy = reshaped(f, f.x("dY"), y);
  const Value dot = row_sums(f, mul(f, y, dy));
  return {reshaped(f, mul(f, y, like_first(f, "Sub", dy, dot, by_row())), f.x("Y"))};
}

std::vector<Value> body(Formula& f) {
  using composing::by_row, composing::like_first, composing::map, composing::matrix, composing::reshaped,
      composing::row_sums;
  const Value e = map(f, "Exp", matrix(f, f.x("X"), f.args<SoftmaxArgs>().axis));
  return {reshaped(f, like_first(f, "Div", e, row_sums(f, e), by_row()), f.x("X"))};
}

REGISTER(softmax) {
  return op<SoftmaxArgs>("Softmax")
      .doc("Exponentials divided by their sum, over everything from axis on.")
      .arg("axis", &SoftmaxArgs::axis, 1,
           "where a row begins, which has all dimensions from there on: with 1, [2, 3, 4] is 2 rows of 12")
      .input("X", "scores, any shape of more than axis dimensions")
      .output("Y", "probabilities", like("X"))
      .in_place("X", "Y")
      .shape(infer)
      .rowwise(leading_rows<SoftmaxArgs>)
      .example({"X=3,4"})
      .example({"X=2,3,2"}, {"axis=2"})
      .example({"X=2,3"}, {"axis=0"})
      .example({"X=2,1"}, {"axis=-1"})
      .example({"X=2,0"})
      .flops(flops_per_output(4))
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivative("X",
                  [](Formula& f) {
                    return f.op("SoftmaxGradient", {f.y("Y"), f.dy("Y")}, f.forward_args());
                  })
      .composed(body);
}

REGISTER(softmax_gradient) {
  return op<SoftmaxArgs>("SoftmaxGradient")
      .doc("Gradient of Softmax, from its output.")
      .arg("axis", &SoftmaxArgs::axis, 1, "as Softmax's")
      .input("Y", "Softmax's output")
      .input("dY", "its gradient")
      .output("dX", "Y (dY - sum(Y dY)) per row")
      .in_place("dY", "dX", {"Y"})
      .shape(infer_gradient)
      .rowwise(leading_rows<SoftmaxArgs>)
      .flops(flops_per_output(4))
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body)
      .derivative("dY", [](Formula& f) {
        return f.op("SoftmaxGradient", {f.x("Y"), f.dy("dX")}, f.forward_args());
      });
}

}  // namespace
}  // namespace stepnet::cpu_softmax
