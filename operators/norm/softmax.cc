// Softmax: each row of exponentials divided by its sum. X is flattened before `axis`, so a row is everything from that
// axis on; with single_axis it is a line along that axis alone.
//
// dX = Y (dY - sum(Y dY)) per row. It reads Y, not X. That is the product of a symmetric matrix with dY, so its
// derivative of dY is itself; that of Y follows from the formula.

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/norm/softmax_lines.h"

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
  each_softmax_line<T, 1>(softmax_lines(a, call.in(0).shape()), 2.0, {x.data()}, y.data(),
                          [](const auto& in, Out<T> out) { softmax_row(in[0], out); });
}

template <class T>
void gradient_row(In<T> y, In<T> dy, Out<T> dx) {
  double dot = 0;
  for (size_t i = 0; i < y.size(); ++i) dot += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
  for (size_t i = 0; i < y.size(); ++i) dx[i] = y[i] * (dy[i] - static_cast<T>(dot));
}

template <class T>
void gradient(const SoftmaxArgs& a, In<T> y, In<T> dy, Out<T> dx, Call& call) {
  each_softmax_line<T, 2>(softmax_lines(a, call.in(0).shape()), 1.5, {y.data(), dy.data()}, dx.data(),
                          [](const auto& in, Out<T> out) { gradient_row(in[0], in[1], out); });
}

void infer_gradient(const SoftmaxArgs& a, ShapeCall& c) {
  if (c.known(0) && c.known(1))
    require(c.shape(0).size() == c.shape(1).size(), "Y is {}, but dY {}", c.shape(0), c.shape(1));
  infer_softmax(a, c);
}

std::vector<Value> gradient_body(Formula& f) {
  using composing::mul, composing::reshaped;
  const Value y = softmax_operand(f, f.x("Y")), dy = reshaped(f, f.x("dY"), y);
  const Value dot = line_sums(f, mul(f, y, dy));
  return {reshaped(f, mul(f, y, with_lines(f, "Sub", dy, dot)), f.x("Y"))};
}

std::vector<Value> body(Formula& f) {
  const Value e = composing::map(f, "Exp", softmax_operand(f, f.x("X")));
  return {composing::reshaped(f, with_lines(f, "Div", e, line_sums(f, e)), f.x("X"))};
}

REGISTER(softmax) {
  auto builder = op<SoftmaxArgs>("Softmax");
  return declare_softmax_axis(builder)
      .doc("Exponentials divided by their sum, over everything from axis on, or along axis alone.")
      .input("X", "scores, any shape of more than axis dimensions")
      .output("Y", "probabilities", like("X"))
      .in_place("X", "Y")
      .shape(infer_softmax)
      .rowwise(leading_rows<SoftmaxArgs>)
      .example({"X=3,4"})
      .example({"X=2,3,2"}, {"axis=2"})
      .example({"X=2,3"}, {"axis=0"})
      .example({"X=2,1"}, {"axis=-1"})
      .example({"X=2,0"})
      .example({"X=2,3,2"}, {"single_axis=true"})
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
  auto builder = op<SoftmaxArgs>("SoftmaxGradient");
  return declare_softmax_axis(builder)
      .doc("Gradient of Softmax, from its output.")
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
