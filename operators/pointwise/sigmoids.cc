// Activations between two bounds, Sigmoid, Tanh, Softsign and HardSigmoid, and Swish and Gelu, which are X times such a
// function of X.
#include "operators/pointwise/sigmoids.h"

#include <numbers>

#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "operators/pointwise/activation.h"

namespace stepnet::cpu_sigmoids {
namespace {

// Sigmoid: Y = 1 / (1 + exp(-X)), element by element.
//
// dX = dY Y (1 - Y). It reads Y, not X, so a step net may drop X after the forward pass.

// d(dY Y (1 - Y)) / dY, times the outer gradient G: G dY (1 - 2 Y).
Gradient sigmoid_second_derivative(Formula& f) {
  const Value product = f.op("Mul", {f.dy("dX"), f.x("dY")});
  const Value scaled = f.op("Mul", {product, f.x("Y")});
  return f.op("Sub", {product, f.op("Add", {scaled, scaled})});
}

REGISTER(sigmoid) {
  return activation("Sigmoid")
      .doc("Logistic function, element by element.")
      .output("Y", "1 / (1 + exp(-X))", like("X"))
      .fused({{FusedCode::sigmoid, 0}})
      .flops(flops_per_output(3))
      .cpu_by_instructions();
}

REGISTER(sigmoid_gradient) {
  auto builder = activation_gradient("Sigmoid", sigmoid_second_derivative);
  return accept_broadcast_args(builder)
      .output("dX", "dY Y (1 - Y)")
      .in_place("dY", "dX", {"Y"})
      .fused({{FusedCode::one_minus, 0}, {FusedCode::mul, 0, 2}, {FusedCode::mul, 1, 3}})
      .flops(flops_per_output(3))
      .cpu_by_instructions();
}

// Tanh: Y = tanh(X), element by element.
//
// dX = dY (1 - Y^2). It reads Y, not X, so a step net may drop X after the forward pass.

// d(dY (1 - Y^2)) / dY, times the outer gradient G: -2 G dY Y.
Gradient tanh_second_derivative(Formula& f) {
  const Value product = f.op("Mul", {f.op("Mul", {f.dy("dX"), f.x("dY")}), f.x("Y")});
  return f.op("Negative", {f.op("Add", {product, product})});
}

REGISTER(tanh) {
  return activation("Tanh")
      .doc("Hyperbolic tangent, element by element.")
      .output("Y", "tanh(X)", like("X"))
      .fused({{FusedCode::tanh, 0}})
      .flops(flops_per_output(1))
      .cpu_by_instructions();
}

REGISTER(tanh_gradient) {
  auto builder = activation_gradient("Tanh", tanh_second_derivative);
  return accept_broadcast_args(builder)
      .output("dX", "dY (1 - Y^2)")
      .in_place("dY", "dX", {"Y"})
      .fused({{FusedCode::mul, 0, 0}, {FusedCode::one_minus, 2}, {FusedCode::mul, 1, 3}})
      .flops(flops_per_output(3))
      .cpu_by_instructions();
}

// Softsign: Y = X / (1 + |X|), element by element.
//
// dX = dY / (1 + |X|)^2. It reads X: (1 - |Y|)^2 is the same, but inexact where |Y| is near 1.

// d(dY / (1 + |X|)^2) / dX, times the outer gradient G: -2 G dY / (1 + |X|)^3, with the sign of X.
Gradient softsign_second_derivative(Formula& f) {
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
      .fused({{FusedCode::abs, 0}, {FusedCode::add_value, 1, 1, 1}, {FusedCode::div, 0, 2}})
      .cpu_by_instructions();
}

REGISTER(softsign_gradient) {
  auto builder = activation_gradient("Softsign", softsign_second_derivative, "X");
  return accept_broadcast_args(builder)
      .output("dX", "dY / (1 + |X|)^2")
      .in_place("dY", "dX", {"X"})
      .flops(flops_per_output(3))
      .fused({{FusedCode::abs, 0}, {FusedCode::add_value, 2, 2, 1}, {FusedCode::mul, 3, 3}, {FusedCode::div, 1, 4}})
      .cpu_by_instructions();
}

// HardSigmoid: Y = max(0, min(1, alpha X + beta)), element by element; NaN stays NaN.
//
// dX = alpha dY where 0 < Y < 1, else 0, at the bounds too. It reads Y, not X, so a step net may drop X after the
// forward pass.

OpBuilder<HardSigmoidArgs>& add_hard_sigmoid_args(OpBuilder<HardSigmoidArgs>& builder) {
  return builder.arg("alpha", &HardSigmoidArgs::alpha, 0.2F, "the slope between the bounds")
      .arg("beta", &HardSigmoidArgs::beta, 0.5F, "the value at 0");
}

REGISTER(hard_sigmoid) {
  auto builder = activation<HardSigmoidArgs>("HardSigmoid");
  builder.doc("A line between the bounds 0 and 1, element by element.");
  return add_hard_sigmoid_args(builder)
      .output("Y", "max(0, min(1, alpha X + beta))", like("X"))
      .example({"X=3,4,-2..2"}, {"alpha=0.7", "beta=0.4"})
      .flops(flops_per_output(2))
      .fused([](const HardSigmoidArgs& a, int) {
        return FusedBody{{FusedCode::scale, 0, 0, a.alpha},
                         {FusedCode::add_value, 1, 1, a.beta},
                         {FusedCode::at_least, 2, 2, 0},
                         {FusedCode::at_most, 3, 3, 1}};
      })
      .cpu_by_instructions();
}

REGISTER(hard_sigmoid_gradient) {
  auto builder = activation_gradient<HardSigmoidArgs>("HardSigmoid", zero_by_read);
  return accept_broadcast_args(add_hard_sigmoid_args(builder))
      .output("dX", "alpha dY where 0 < Y < 1, else 0")
      .in_place("dY", "dX")
      .flops(flops_per_output(1))
      .fused([](const HardSigmoidArgs& a, int) {
        return FusedBody{{FusedCode::scale, 1, 1, a.alpha},
                         {FusedCode::if_positive, 0, 2},
                         {FusedCode::one_minus, 0},
                         {FusedCode::if_positive, 4, 3}};
      })
      .cpu_by_instructions();
}

// Swish: Y = X s(X), element by element, with the logistic function s.
//
// dX = dY s(X) (1 + X (1 - s(X))). It reads X. SwishGradient has Y among its inputs, as the public format does, but of
// it only the shape.

void infer_swish_gradient(const NoArgs&, ShapeCall& c) {
  for (const int i : {1, 2})
    if (c.known(0) && c.known(i))
      require(c.shape(0) == c.shape(i), "X is {}, but {} {}", c.shape(0), i == 1 ? "Y" : "dY", c.shape(i));
  c.set_like(0, c.known(0) ? 0 : 2);
}

// The derivative by X, times the outer gradient G: G dY s (1 - s) (2 + X (1 - 2 s)).
Gradient swish_second_derivative(Formula& f) {
  const Value s = f.op("Sigmoid", {f.x("X")});
  const Value product = f.op("Mul", {f.dy("dX"), f.x("dY")});
  const Value line = f.op("Mul", {product, f.x("X")});
  const Value bent = f.op("Scale", {f.op("Mul", {line, s})}, {make_arg("scale", 2.0F)});
  const Value factor = f.op("Add", {f.op("Add", {product, product}), f.op("Sub", {line, bent})});
  return f.op("SigmoidGradient", {s, factor});
}

// Swish, and Silu, which is its name elsewhere.
OpBuilder<NoArgs> swish_named(const char* type) {
  OpBuilder<NoArgs> b(type);
  b.doc("X times the logistic function of X, element by element.")
      .input("X", "any shape")
      .output("Y", "X / (1 + exp(-X))", like("X"))
      .elementwise()
      .example({"X=3,4,-2..2"})
      .example({"X=0"})
      .flops(flops_per_output(3))
      .fused({{FusedCode::sigmoid, 0}, {FusedCode::mul, 0, 1}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("SwishGradient", {f.x("X"), f.y("Y"), f.dy("Y")});
      });
  return b;
}

REGISTER(swish) { return swish_named("Swish"); }
REGISTER(silu) { return swish_named("Silu").own(); }

REGISTER(swish_gradient) {
  return op("SwishGradient")
      .doc("Gradient of Swish, from its input.")
      .input("X", "Swish's input")
      .input("Y", "Swish's output, whose values are not read")
      .shape_only()
      .input("dY", "gradient of Y")
      .output("dX", "dY s(X) (1 + X (1 - s(X)))")
      .in_place("dY", "dX", {"X"})
      .shape(infer_swish_gradient)
      .elementwise()
      .flops(flops_per_output(8))
      .fused({{FusedCode::sigmoid, 0},
              {FusedCode::one_minus, 3},
              {FusedCode::mul, 0, 4},
              {FusedCode::add_value, 5, 5, 1},
              {FusedCode::mul, 2, 3},
              {FusedCode::mul, 7, 6}})
      .cpu_by_instructions()
      .derivative("X", swish_second_derivative)
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("dY", [](Formula& f) {
        return f.op("SwishGradient", {f.x("X"), f.x("Y"), f.dy("dX")});
      });
}

// Gelu: Y = X P(X), element by element, where P is the normal distribution function (1 + erf(X / sqrt 2)) / 2.
//
// With fast_gelu P(X) is (1 + tanh(u)) / 2 with u = c (X + a X^3), c = sqrt(2 / pi), a = 0.044715.
//
// dX = dY (P(X) + X p(X)), with the normal density p, or P's derivative. It reads X.

// P(X) of operand 0, the results of instructions from `first` on. By erfc, so that small values are exact too.
FusedBody normal_distribution_of(int x, int first) {
  return {{FusedCode::scale, x, x, -1 / std::numbers::sqrt2},
          {FusedCode::erfc, first},
          {FusedCode::scale, first + 1, first + 1, 0.5}};
}

FusedBody gelu_body(const GeluArgs& a, int) {
  if (a.fast_gelu)
    return {{FusedCode::mul, 0, 0},          {FusedCode::scale, 1, 1, kFastGeluCube}, {FusedCode::add_value, 2, 2, 1},
            {FusedCode::mul, 0, 3},          {FusedCode::scale, 4, 4, kFastGelu},     {FusedCode::tanh, 5},
            {FusedCode::add_value, 6, 6, 1}, {FusedCode::scale, 0, 0, 0.5},           {FusedCode::mul, 8, 7}};
  FusedBody body = normal_distribution_of(0, 1);
  body.push_back({FusedCode::mul, 0, 3});
  return body;
}

// dX from dY and X. The approximation's: with t = tanh(u), dY (1 + t + X (1 - t^2) du/dX) / 2. Where t is a number and
// du/dX is infinite, 1 - t^2 is 0, and so is the product: du/dX stays below a bound that X's square has long before.
FusedBody gelu_gradient_body(const GeluArgs& a, int) {
  constexpr double kBound = 1e4;
  if (a.fast_gelu)
    return {{FusedCode::mul, 1, 1},                   // 2
            {FusedCode::at_most, 2, 2, kBound},       // 3
            {FusedCode::scale, 3, 3, kFastGeluCube},  // 4
            {FusedCode::add_value, 4, 4, 1},          // 5
            {FusedCode::mul, 1, 5},                   // 6
            {FusedCode::scale, 6, 6, kFastGelu},      // 7
            {FusedCode::tanh, 7},                     // 8
            {FusedCode::mul, 8, 8},                   // 9
            {FusedCode::one_minus, 9},                // 10
            {FusedCode::scale, 4, 4, 3},              // 11
            {FusedCode::add_value, 11, 11, 1},        // 12
            {FusedCode::scale, 12, 12, kFastGelu},    // 13
            {FusedCode::mul, 10, 13},                 // 14
            {FusedCode::at_most, 1, 1, kBound},       // 15
            {FusedCode::at_least, 15, 15, -kBound},   // 16
            {FusedCode::mul, 16, 14},                 // 17
            {FusedCode::add_value, 8, 8, 1},          // 18
            {FusedCode::add, 18, 17},                 // 19
            {FusedCode::scale, 0, 0, 0.5},            // 20
            {FusedCode::mul, 20, 19}};
  FusedBody body = normal_distribution_of(1, 2);
  body.append({{FusedCode::mul, 1, 1},
               {FusedCode::scale, 5, 5, -0.5},
               {FusedCode::exp, 6},
               {FusedCode::scale, 7, 7, kNormalDensityAtZero},
               {FusedCode::mul, 1, 8},
               {FusedCode::add, 4, 9},
               {FusedCode::mul, 0, 10}});
  return body;
}

void infer_gelu_gradient(const GeluArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "X is {}, but dY {}", c.shape(1), c.shape(0));
  c.set_like(0, c.known(0) ? 0 : 1);
}

// Scale has a factor in float: the rest of the constant is added.
Value times(Formula& f, Value x, double factor) {
  const float most = static_cast<float>(factor), rest = static_cast<float>(factor - static_cast<double>(most));
  return f.op("Add", {f.op("Scale", {x}, {make_arg("scale", most)}), f.op("Scale", {x}, {make_arg("scale", rest)})});
}

// The density at X.
Value density(Formula& f, Value squares) {
  const Value bell = f.op("Exp", {f.op("Scale", {squares}, {make_arg("scale", -0.5F)})});
  return times(f, bell, kNormalDensityAtZero);
}

// The same of the approximation. With u' = c (1 + 3 a X^2) and t = tanh(u) the derivative of dX / dY by X is
// (1 - t^2) (u' - X t u'^2 + 3 c a X^2).
Gradient fast_gelu_second_derivative(Formula& f) {
  using composing::add, composing::fill, composing::map, composing::mul, composing::sub;
  const Value x = f.x("X"), squares = map(f, "Sqr", x);
  const Value bent = times(f, squares, kFastGelu * kFastGeluCube),
              thrice = times(f, squares, 3 * kFastGelu * kFastGeluCube);
  const Value c = fill(f, x, kFastGelu), t = map(f, "Tanh", mul(f, x, add(f, c, bent))), slope = add(f, c, thrice);
  const Value turned = mul(f, mul(f, x, t), map(f, "Sqr", slope));
  const Value derivative = mul(f, sub(f, fill(f, x, 1), map(f, "Sqr", t)), add(f, sub(f, slope, turned), thrice));
  return mul(f, mul(f, f.dy("dX"), f.x("dY")), derivative);
}

// The derivative by X, times the outer gradient G: G dY p(X) (2 - X^2).
Gradient gelu_second_derivative(Formula& f) {
  if (f.args<GeluArgs>().fast_gelu) return fast_gelu_second_derivative(f);
  const Value squares = f.op("Sqr", {f.x("X")});
  const Value product = f.op("Mul", {f.op("Mul", {f.dy("dX"), f.x("dY")}), density(f, squares)});
  return f.op("Sub", {f.op("Add", {product, product}), f.op("Mul", {product, squares})});
}

OpBuilder<GeluArgs>& add_gelu_args(OpBuilder<GeluArgs>& builder) {
  return builder.arg("fast_gelu", &GeluArgs::fast_gelu, false, "the approximation by tanh");
}

REGISTER(gelu) {
  auto builder = op<GeluArgs>("Gelu");
  builder.doc("X times the normal distribution function of X, element by element.");
  return add_gelu_args(builder)
      .input("X", "any shape")
      .output("Y", "X (1 + erf(X / sqrt 2)) / 2; with fast_gelu X (1 + tanh(sqrt(2 / pi) (X + 0.044715 X^3))) / 2",
              like("X"))
      .in_place("X", "Y", {"X"})
      .elementwise()
      .example({"X=3,4,-2..2"})
      .example({"X=3,4,-2..2"}, {"fast_gelu=1"})
      .example({"X=0"})
      .flops([](const auto& a, const ShapeCall& c) { return output_size(c, 0) * (a.fast_gelu ? 9 : 4); })
      .fused(gelu_body)
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("GeluGradient", {f.dy("Y"), f.x("X")}, f.forward_args());
      });
}

REGISTER(gelu_gradient) {
  auto builder = op<GeluArgs>("GeluGradient");
  builder.doc("Gradient of Gelu, from its input.");
  return accept_broadcast_args(add_gelu_args(builder))
      .input("dY", "gradient of Y")
      .input("X", "Gelu's input")
      .output("dX", "dY (P(X) + X p(X))")
      .in_place("dY", "dX", {"X"})
      .shape(infer_gelu_gradient)
      .elementwise()
      .flops([](const auto& a, const ShapeCall& c) { return output_size(c, 0) * (a.fast_gelu ? 17 : 10); })
      .fused(gelu_gradient_body)
      .cpu_by_instructions()
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("GeluGradient", {f.dy("dX"), f.x("X")}, f.forward_args());
                  })
      .derivative("X", gelu_second_derivative);
}

}  // namespace
}  // namespace stepnet::cpu_sigmoids
