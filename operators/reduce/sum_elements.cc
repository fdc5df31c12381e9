// SumElements: the sum or the mean of all elements, a scalar. dX = dY, or dY / n, everywhere; of X only the shape is
// read. SumSqrElements: the same of the squares. dX = 2 X dY, or 2 X dY / n; the gradient of SumElements brings dY to
// X's shape.
//
// LpNorm: the sum of absolute values, or, for p of 2, of squares, which is no norm but is called so in the public
// format. dX = sign(X) dY, or 2 X dY, divided by the number of elements for an average. It reads X.

#include "operators/reduce/sum_elements.h"

#include <algorithm>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"

namespace stepnet::cpu_sum_elements {
namespace {

template <class T>
void forward(const SumArgs& a, In<T> x, Out<T> y) {
  y[0] = static_cast<T>(vec_sum(x) / sum_divisor(a, x.size()));
}

template <class T>
void squares(const SumArgs& a, In<T> x, Out<T> y) {
  y[0] = static_cast<T>(vec_sum_squares(x) / sum_divisor(a, x.size()));
}

template <class T>
void gradient(const SumArgs& a, In<T>, In<T> dy, Out<T> dx) {
  std::fill(dx.begin(), dx.end(), static_cast<T>(dy[0] / sum_divisor(a, dx.size())));
}

void infer(const SumArgs&, ShapeCall& c) {
  if (c.known(0)) c.set(0, c.dtype(0), Shape{});
}

void infer_gradient(const SumArgs&, ShapeCall& c) {
  if (c.known(1)) require(c.shape(1).size() == 1, "dY must be one number, but is {}", c.shape(1));
  c.set_like(0, 0);
}

Gradient derivative_of_squares(Formula& f) {
  const Value share = f.op("SumElementsGradient", {f.x("X"), f.dy("Y")}, f.forward_args());
  const Value half = f.op("Mul", {share, f.x("X")});
  return f.op("Add", {half, half});
}

REGISTER(sum_elements) {
  return op<SumArgs>("SumElements")
      .doc("The sum of all elements.")
      .arg("average", &SumArgs::average, false, "divide by the number of elements")
      .input("X", "any shape")
      .output("Y", "a scalar")
      .shape(infer)
      .example({"X=2,3"})
      .example({"X=2,3"}, {"average=true"})
      .example({"X=0,2"}, {"average=true"})
      .flops([](const auto& a, const ShapeCall& c) { return input_size(c, 0) + (a.average ? 1 : 0); })
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("SumElementsGradient", {f.x("X"), f.dy("Y")}, f.forward_args());
      });
}

REGISTER(sum_elements_gradient) {
  return op<SumArgs>("SumElementsGradient")
      .doc("Gradient of SumElements: dY, or dY / n, everywhere.")
      .arg("average", &SumArgs::average, false, "as SumElements'")
      .input("X", "SumElements' input")
      .shape_only()
      .input("dY", "one number")
      .output("dX", "like X")
      .shape(infer_gradient)
      .flops([](const auto& a, const ShapeCall&) { return a.average ? 1 : 0; })
      .cpu(gradient<float>, gradient<double>)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("dY", [](Formula& f) { return f.op("SumElements", {f.dy("dX")}, f.forward_args()); });
}

REGISTER(sum_sqr_elements) {
  return op<SumArgs>("SumSqrElements")
      .doc("The sum of the squares of all elements.")
      .arg("average", &SumArgs::average, false, "divide by the number of elements")
      .input("X", "any shape")
      .output("Y", "a scalar")
      .shape(infer)
      .example({"X=2,3"})
      .example({"X=2,3"}, {"average=true"})
      .flops([](const auto& a, const ShapeCall& c) { return 2 * input_size(c, 0) + (a.average ? 1 : 0); })
      .precision(Precision::float32)
      .cpu(squares<float>, squares<double>)
      .derivative("X", derivative_of_squares);
}

template <class T>
void lp_norm(const LpNormArgs& a, In<T> x, Out<T> y) {
  double sum = 0;
  for (const T v : x) sum += lp_term(a.p, static_cast<double>(v));
  y[0] = static_cast<T>(sum / sum_divisor(a, x.size()));
}

template <class T>
void lp_norm_gradient(const LpNormArgs& a, In<T> x, In<T> dy, Out<T> dx) {
  const T share = static_cast<T>(dy[0] / sum_divisor(a, x.size()));
  for (size_t i = 0; i < dx.size(); ++i) dx[i] = lp_slope(a.p, x[i]) * share;
}

void infer_lp_norm(const LpNormArgs&, ShapeCall& c) {
  if (c.known(0)) c.set(0, c.dtype(0), Shape{1});
}

// As small operators over X and dY, which has a dimension and is made a scalar first.
std::vector<Value> lp_gradient_body(Formula& f) {
  const auto& a = f.args<LpNormArgs>();
  const Value x = f.x("X"), dy = f.op("SumElements", {f.x("dY")});
  const Value share = f.op("SumElementsGradient", {x, dy}, {make_arg("average", a.average)});
  return {f.op("Mul", {share, a.p == 2 ? f.op("Add", {x, x}) : f.op("Sign", {x})})};
}

OpBuilder<LpNormArgs>& add_lp_args(OpBuilder<LpNormArgs>& b) {
  return b
      .arg("p", &LpNormArgs::p, int64_t{2}, "1: absolute values are added; 2: squares",
           ArgCheck<int64_t>([](const int64_t& p) { return std::string(p == 1 || p == 2 ? "" : "must be 1 or 2"); }))
      .arg("average", static_cast<bool LpNormArgs::*>(&SumArgs::average), false, "divide by the number of elements");
}

REGISTER(lp_norm) {
  auto spec = op<LpNormArgs>("LpNorm");
  return add_lp_args(spec)
      .doc("The sum of the absolute values, or with p of 2 of the squares, of all elements.")
      .input("X", "any shape")
      .output("Y", "[1], the sum")
      .shape(infer_lp_norm)
      .example({"X=2,3"})
      .example({"X=4"}, {"p=1"})
      .example({"X=4"}, {"p=1", "average=true"})
      .example({"X=2,3"}, {"average=true"})
      .flops([](const LpNormArgs& a, const ShapeCall& c) {
        return static_cast<double>(a.p) * input_size(c, 0) + (a.average ? 1 : 0);
      })
      .precision(Precision::float32)
      .cpu(lp_norm<float>, lp_norm<double>)
      .derivative("X", [](Formula& f) {
        return f.op("LpNormGradient", {f.x("X"), f.dy("Y")}, f.forward_args());
      });
}

REGISTER(lp_norm_gradient) {
  auto spec = op<LpNormArgs>("LpNormGradient");
  return add_lp_args(spec)
      .doc("Gradient of LpNorm. Of an element of 0 it is 0.")
      .input("X", "LpNorm's input")
      .input("dY", "one number")
      .output("dX", "like X")
      .shape([](const LpNormArgs& a, ShapeCall& c) { infer_gradient(a, c); })
      .flops([](const LpNormArgs& a, const ShapeCall& c) {
        return static_cast<double>(a.p) * input_size(c, 0) + (a.average ? 1 : 0);
      })
      .cpu(lp_norm_gradient<float>, lp_norm_gradient<double>)
      .composed(lp_gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_sum_elements
