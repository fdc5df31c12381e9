// HardSigmoid: Y = max(0, min(1, alpha X + beta)), element by element; NaN stays NaN.
//
// dX = alpha dY where 0 < Y < 1, else 0, at the bounds too. It reads Y, not X, so a step net may drop X after the
// forward pass.

#include "operators/pointwise/hard_sigmoid.h"

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(const HardSigmoidArgs& a, In<T> x, Out<T> y) {
  each_element(x, y, 0.3, HardSigmoidValue<T>{static_cast<T>(a.alpha), static_cast<T>(a.beta)});
}

template <class T>
void gradient(const HardSigmoidArgs& a, In<T> y, In<T> dy, Out<T> dx) {
  each_element(y, dy, dx, 0.3, HardSigmoidSlope<T>{static_cast<T>(a.alpha)});
}

OpBuilder<HardSigmoidArgs>& add_args(OpBuilder<HardSigmoidArgs>& builder) {
  return builder.arg("alpha", &HardSigmoidArgs::alpha, 0.2F, "the slope between the bounds")
      .arg("beta", &HardSigmoidArgs::beta, 0.5F, "the value at 0");
}

REGISTER(hard_sigmoid) {
  auto builder = activation<HardSigmoidArgs>("HardSigmoid");
  builder.doc("A line between the bounds 0 and 1, element by element.");
  return add_args(builder)
      .output("Y", "max(0, min(1, alpha X + beta))", like("X"))
      .example({"X=3,4,-2..2"}, {"alpha=0.7", "beta=0.4"})
      .flops(flops_per_output(2))
      .cpu(forward<float>, forward<double>);
}

REGISTER(hard_sigmoid_gradient) {
  auto builder = activation_gradient<HardSigmoidArgs>("HardSigmoid", [](Formula&) { return Gradient::none(); });
  return add_args(builder)
      .output("dX", "alpha dY where 0 < Y < 1, else 0")
      .in_place("dY", "dX")
      .flops(flops_per_output(1))
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
