// Activations that are X where it is large and bounded, or nearly so, below: Relu, LeakyRelu, Elu and Softplus; and
// Clip, with a bound on either side.
#include "operators/pointwise/rectifiers.h"

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet::cpu_rectifiers {
namespace {

// Relu: Y = max(X, 0), element by element.
//
// dX = dY where Y > 0, else 0. It reads Y, not X, so a step net may drop X after the forward pass.

REGISTER(relu) {
  return activation("Relu")
      .doc("The larger of X and 0, element by element.")
      .output("Y", "max(X, 0)", like("X"))
      .fused({{FusedCode::relu, 0}})
      .cpu_by_instructions();
}

REGISTER(relu_gradient) {
  auto builder = activation_gradient("Relu", zero_by_read);
  return accept_broadcast_args(builder)
      .output("dX", "dY where Y > 0, else 0")
      .in_place("dY", "dX")
      .fused({{FusedCode::if_positive, 0, 1}})
      .cpu_by_instructions();
}

// LeakyRelu: Y = X where X > 0, else alpha X.
//
// dX = dY where X > 0, else alpha dY. X and Y are positive in the same places unless alpha is negative, so it reads Y,
// or with a negative alpha X.

Gradient leaky_relu_derivative(Formula& f) {
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
      .fused([](const LeakyReluArgs& a, int) {
        return FusedBody{{FusedCode::scale, 0, 0, a.alpha},
                         {FusedCode::unless_positive, 0, 1},
                         {FusedCode::if_positive, 0, 0},
                         {FusedCode::either, 3, 2}};
      })
      .cpu_by_instructions()
      .derivative("X", leaky_relu_derivative);
}

REGISTER(leaky_relu_gradient) {
  return activation_gradient<LeakyReluArgs>("LeakyRelu", zero_by_read)
      .arg("alpha", &LeakyReluArgs::alpha, 0.01F, "as LeakyRelu's; of a negative one the first input is X")
      .output("dX", "dY where Y > 0, else alpha dY")
      .in_place("dY", "dX")
      .flops(flops_per_output(1))
      .fused([](const LeakyReluArgs& a, int) {
        return FusedBody{{FusedCode::scale, 1, 1, a.alpha},
                         {FusedCode::unless_positive, 0, 2},
                         {FusedCode::if_positive, 0, 1},
                         {FusedCode::either, 4, 3}};
      })
      .cpu_by_instructions();
}

// Elu: Y = X where X > 0, else alpha (exp(X) - 1); alpha is not negative.
//
// dX = dY where Y > 0, else dY (Y + alpha). It reads Y, not X, so a step net may drop X after the forward pass.

// d(dY (Y + alpha)) / dY, times the outer gradient G: G dY where Y < 0.
Gradient elu_second_derivative(Formula& f) {
  return f.op("ReluGradient", {f.op("Negative", {f.x("Y")}), f.op("Mul", {f.dy("dX"), f.x("dY")})});
}

REGISTER(elu) {
  return activation<EluArgs>("Elu")
      .doc("X where it is positive, else alpha (exp(X) - 1).")
      .arg("alpha", &EluArgs::alpha, 1.0F, "minus the limit for small X", float_at_least(0))
      .output("Y", "X where X > 0, else alpha (exp(X) - 1)", like("X"))
      .example({"X=3,4,-2..2"}, {"alpha=0.5"})
      .flops(flops_per_output(3))
      .fused([](const EluArgs& a, int) {
        return FusedBody{{FusedCode::expm1, 0},
                         {FusedCode::scale, 1, 1, a.alpha},
                         {FusedCode::unless_positive, 0, 2},
                         {FusedCode::if_positive, 0, 0},
                         {FusedCode::either, 4, 3}};
      })
      .cpu_by_instructions();
}

REGISTER(elu_gradient) {
  auto builder = activation_gradient<EluArgs>("Elu", elu_second_derivative);
  return accept_broadcast_args(builder)
      .arg("alpha", &EluArgs::alpha, 1.0F, "as Elu's", float_at_least(0))
      .output("dX", "dY where Y > 0, else dY (Y + alpha)")
      .in_place("dY", "dX", {"Y"})
      .flops(flops_per_output(2))
      .fused([](const EluArgs& a, int) {
        return FusedBody{{FusedCode::add_value, 0, 0, a.alpha},
                         {FusedCode::mul, 1, 2},
                         {FusedCode::unless_positive, 0, 3},
                         {FusedCode::if_positive, 0, 1},
                         {FusedCode::either, 5, 4}};
      })
      .cpu_by_instructions();
}

// Softplus: Y = ln(1 + exp(X)), element by element, computed as max(X, 0) + ln(1 + exp(-|X|)), which never overflows.
//
// dX = dY (1 - exp(-Y)), which is dY times the logistic function of X. It reads Y, not X, so a step net may drop X
// after the forward pass.

// d(dY (1 - exp(-Y))) / dY, times the outer gradient G: G dY exp(-Y).
Gradient softplus_second_derivative(Formula& f) {
  const Value rest = f.op("Exp", {f.op("Negative", {f.x("Y")})});
  return f.op("Mul", {f.op("Mul", {f.dy("dX"), f.x("dY")}), rest});
}

REGISTER(softplus) {
  return activation("Softplus")
      .doc("ln(1 + exp(X)), element by element: a smooth Relu.")
      .output("Y", "ln(1 + exp(X))", like("X"))
      .flops(flops_per_output(3))
      .precision(Precision::float32)
      .fused({{FusedCode::abs, 0},
              {FusedCode::negative, 1},
              {FusedCode::exp, 2},
              {FusedCode::log1p, 3},
              {FusedCode::relu, 0},
              {FusedCode::add, 5, 4}})
      .cpu_by_instructions();
}

REGISTER(softplus_gradient) {
  return activation_gradient("Softplus", softplus_second_derivative)
      .output("dX", "dY (1 - exp(-Y))")
      .in_place("dY", "dX", {"Y"})
      .flops(flops_per_output(3))
      .fused({{FusedCode::negative, 0}, {FusedCode::expm1, 2}, {FusedCode::negative, 1}, {FusedCode::mul, 4, 3}})
      .cpu_by_instructions();
}

// Clip: Y = the nearest value to X from min to max, element by element; NaN stays NaN.
//
// dX = dY where min < Y < max, else 0, at the bounds too. It reads Y, not X, so a step net may drop X after the forward
// pass.

void clip_infer(const ClipArgs& a, ShapeCall& c) {
  require(a.min <= a.max, "min is {}, which is not at most max, {}", a.min, a.max);
  c.set_like(0, 0);
}

OpBuilder<ClipArgs>& add_clip_args(OpBuilder<ClipArgs>& builder) {
  return builder.arg("min", &ClipArgs::min, ClipArgs().min, "the least value")
      .arg("max", &ClipArgs::max, ClipArgs().max, "the greatest value");
}

REGISTER(clip) {
  auto builder = activation<ClipArgs>("Clip");
  builder.doc("Brings every element between two bounds.");
  return add_clip_args(builder)
      .output("Y", "X, or the bound that it is beyond")
      .shape(clip_infer)
      .example({"X=3,4,-2..2"}, {"min=-0.5", "max=0.8"})
      .example({"X=3,4,-2..2"}, {"max=0"})
      .fused([](const ClipArgs& a, int) {
        return FusedBody{{FusedCode::at_least, 0, 0, a.min}, {FusedCode::at_most, 1, 1, a.max}};
      })
      .cpu_by_instructions();
}

REGISTER(clip_gradient) {
  auto builder = activation_gradient<ClipArgs>("Clip", zero_by_read);
  return add_clip_args(builder)
      .output("dX", "dY where min < Y < max, else 0")
      .in_place("dY", "dX")
      .fused([](const ClipArgs& a, int) {
        return FusedBody{{FusedCode::add_value, 0, 0, -a.min},
                         {FusedCode::if_positive, 2, 1},
                         {FusedCode::negative, 0},
                         {FusedCode::add_value, 4, 4, a.max},
                         {FusedCode::if_positive, 5, 3}};
      })
      .cpu_by_instructions();
}

}  // namespace
}  // namespace stepnet::cpu_rectifiers
