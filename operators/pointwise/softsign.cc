// Softsign: Y = X / (1 + |X|), element by element.
//
// dX = dY / (1 + |X|)^2. It reads X: (1 - |Y|)^2 is the same, but inexact where |Y| is near 1.

#include "operators/pointwise/softsign.h"

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  each_element(x, y, 0.5, SoftsignValue<T>());
}

template <class T>
void gradient(In<T> x, In<T> dy, Out<T> dx) {
  each_element(x, dy, dx, 0.5, SoftsignSlope<T>());
}

// d(dY / (1 + |X|)^2) / dX, times the outer gradient G: -2 G dY / (1 + |X|)^3, with the sign of X.
Gradient second_derivative(Formula& f) {
  const Value x = f.x("X");
  const Value size = f.op("Add", {f.op("Abs", {x}), f.op("ConstantFill", {x}, {make_arg("value", 1.0F)})});
  const Value product = f.op("Mul", {f.dy("dX"), f.x("dY")});
  const Value cubed = f.op("Div", {f.op("SoftsignGradient", {x, product}), size});
  return f.op("Scale", {f.op("AbsGradient", {x, cubed})}, {make_arg("scale", -2.0F)});
}

REGISTER(softsign) {
  return activation("Softsign", "X")
      .doc("X / (1 + |X|), element by element.")
      .output("Y", "X / (1 + |X|)", like("X"))
      .flops(flops_per_output(2))
      .cpu(forward<float>, forward<double>);
}

REGISTER(softsign_gradient) {
  return activation_gradient("Softsign", second_derivative, "X")
      .output("dX", "dY / (1 + |X|)^2")
      .in_place("dY", "dX", {"X"})
      .flops(flops_per_output(3))
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
