// LeakyRelu: Y = X where X > 0, else alpha X.
//
// dX = dY where X > 0, else alpha dY. X and Y are positive in the same places unless alpha is negative, so it reads Y,
// or with a negative alpha X.

#include "operators/pointwise/leaky_relu.h"

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(const LeakyReluArgs& a, In<T> x, Out<T> y) {
  each_element(x, y, 0.3, LeakyReluValue<T>{static_cast<T>(a.alpha)});
}

template <class T>
void gradient(const LeakyReluArgs& a, In<T> y, In<T> dy, Out<T> dx) {
  each_element(y, dy, dx, 0.3, LeakyReluSlope<T>{static_cast<T>(a.alpha)});
}

Gradient derivative(Formula& f) {
  const Value positive = f.args<LeakyReluArgs>().alpha < 0 ? f.x("X") : f.y("Y");
  return f.op("LeakyReluGradient", {positive, f.dy("Y")}, f.forward_args());
}

REGISTER(leaky_relu) {
  return op<LeakyReluArgs>("LeakyRelu")
      .doc("X where it is positive, else alpha X. Programs of 2018 took 0 for an alpha that is not given.")
      .arg("alpha", &LeakyReluArgs::alpha, 0.01F, "the slope of what is negative")
      .input("X", "any shape")
      .output("Y", "X where X > 0, else alpha X", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .example({"X=3,4,-2..2"})
      .example({"X=3,4,-2..2"}, {"alpha=0"})
      .example({"X=3,4,-2..2"}, {"alpha=-0.5"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", derivative);
}

REGISTER(leaky_relu_gradient) {
  return activation_gradient<LeakyReluArgs>("LeakyRelu", zeros_like_read)
      .arg("alpha", &LeakyReluArgs::alpha, 0.01F, "as LeakyRelu's; of a negative one the first input is X")
      .output("dX", "dY where Y > 0, else alpha dY")
      .in_place("dY", "dX")
      .flops(flops_per_output(1))
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
