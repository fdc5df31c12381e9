// SumElements: the sum or the mean of all elements, a scalar. dX = dY, or dY / n, everywhere; of X only the shape is
// read. SumSqrElements: the same of the squares. dX = 2 X dY, or 2 X dY / n; the gradient of SumElements brings dY to
// X's shape.

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

}  // namespace
}  // namespace stepnet::cpu_sum_elements
