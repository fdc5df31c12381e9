// Activations between two bounds, Sigmoid, Tanh, Softsign and HardSigmoid, and Swish and Gelu, which are X times such a
// function of X.
#include "operators/pointwise/sigmoids.h"

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "operators/pointwise/activation.h"

namespace stepnet::cpu_sigmoids {
namespace {

// Sigmoid: Y = 1 / (1 + exp(-X)), element by element.
//
// dX = dY Y (1 - Y). It reads Y, not X, so a step net may drop X after the forward pass.

template <class T>
void sigmoid_forward(In<T> x, Out<T> y) {
  apply_activation(x, y, [](In<T> from, Out<T> to) { vec_sigmoid(from, to); });
}

template <class T>
void sigmoid_gradient_of(In<T> y, In<T> dy, Out<T> dx) {
  const T *v = y.data(), *d = dy.data();
  T* to = dx.data();
#pragma omp simd
  for (size_t i = 0; i < y.size(); ++i) to[i] = d[i] * v[i] * (T(1) - v[i]);
}

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
      .cpu(sigmoid_forward<float>, sigmoid_forward<double>);
}

REGISTER(sigmoid_gradient) {
  auto builder = activation_gradient("Sigmoid", sigmoid_second_derivative);
  return accept_broadcast_args(builder)
      .output("dX", "dY Y (1 - Y)")
      .in_place("dY", "dX", {"Y"})
      .fused({{FusedCode::one_minus, 0}, {FusedCode::mul, 0, 2}, {FusedCode::mul, 1, 3}})
      .flops(flops_per_output(3))
      .cpu(sigmoid_gradient_of<float>, sigmoid_gradient_of<double>);
}

// Tanh: Y = tanh(X), element by element.
//
// dX = dY (1 - Y^2). It reads Y, not X, so a step net may drop X after the forward pass.

template <class T>
void tanh_forward(In<T> x, Out<T> y) {
  apply_activation(x, y, [](In<T> from, Out<T> to) { vec_tanh(from, to); });
}

template <class T>
void tanh_gradient_of(In<T> y, In<T> dy, Out<T> dx) {
  const T *v = y.data(), *d = dy.data();
  T* to = dx.data();
#pragma omp simd
  for (size_t i = 0; i < y.size(); ++i) to[i] = d[i] * (T(1) - v[i] * v[i]);
}

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
      .cpu(tanh_forward<float>, tanh_forward<double>);
}

REGISTER(tanh_gradient) {
  auto builder = activation_gradient("Tanh", tanh_second_derivative);
  return accept_broadcast_args(builder)
      .output("dX", "dY (1 - Y^2)")
      .in_place("dY", "dX", {"Y"})
      .fused({{FusedCode::mul, 0, 0}, {FusedCode::one_minus, 2}, {FusedCode::mul, 1, 3}})
      .flops(flops_per_output(3))
      .cpu(tanh_gradient_of<float>, tanh_gradient_of<double>);
}

// Softsign: Y = X / (1 + |X|), element by element.
//
// dX = dY / (1 + |X|)^2. It reads X: (1 - |Y|)^2 is the same, but inexact where |Y| is near 1.

template <class T>
void softsign_forward(In<T> x, Out<T> y) {
  each_element(x, y, 0.5, SoftsignValue<T>());
}

template <class T>
void softsign_gradient_of(In<T> x, In<T> dy, Out<T> dx) {
  each_element(x, dy, dx, 0.5, SoftsignSlope<T>());
}

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
      .cpu(softsign_forward<float>, softsign_forward<double>);
}

REGISTER(softsign_gradient) {
  auto builder = activation_gradient("Softsign", softsign_second_derivative, "X");
  return accept_broadcast_args(builder)
      .output("dX", "dY / (1 + |X|)^2")
      .in_place("dY", "dX", {"X"})
      .flops(flops_per_output(3))
      .cpu(softsign_gradient_of<float>, softsign_gradient_of<double>);
}

// HardSigmoid: Y = max(0, min(1, alpha X + beta)), element by element; NaN stays NaN.
//
// dX = alpha dY where 0 < Y < 1, else 0, at the bounds too. It reads Y, not X, so a step net may drop X after the
// forward pass.

template <class T>
void hard_sigmoid_forward(const HardSigmoidArgs& a, In<T> x, Out<T> y) {
  each_element(x, y, 0.3, HardSigmoidValue<T>{static_cast<T>(a.alpha), static_cast<T>(a.beta)});
}

template <class T>
void hard_sigmoid_gradient_of(const HardSigmoidArgs& a, In<T> y, In<T> dy, Out<T> dx) {
  each_element(y, dy, dx, 0.3, HardSigmoidSlope<T>{static_cast<T>(a.alpha)});
}

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
      .cpu(hard_sigmoid_forward<float>, hard_sigmoid_forward<double>);
}

REGISTER(hard_sigmoid_gradient) {
  auto builder = activation_gradient<HardSigmoidArgs>("HardSigmoid", zero_by_read);
  return accept_broadcast_args(add_hard_sigmoid_args(builder))
      .output("dX", "alpha dY where 0 < Y < 1, else 0")
      .in_place("dY", "dX")
      .flops(flops_per_output(1))
      .cpu(hard_sigmoid_gradient_of<float>, hard_sigmoid_gradient_of<double>);
}

// Swish: Y = X s(X), element by element, with the logistic function s.
//
// dX = dY s(X) (1 + X (1 - s(X))). It reads X. SwishGradient has Y among its inputs, as the public format does, but of
// it only the shape.

template <class T>
void swish_forward(In<T> x, Out<T> y) {
  each_piece<T>(x.size(), 1.0, [&](int64_t at, Out<T> s) {
    vec_sigmoid(x.subspan(at, s.size()), s);
    for (size_t i = 0; i < s.size(); ++i) y[at + i] = x[at + i] * s[i];
  });
}

template <class T>
void swish_gradient_of(In<T> x, In<T>, In<T> dy, Out<T> dx) {
  each_piece<T>(x.size(), 1.5, [&](int64_t at, Out<T> s) {
    vec_sigmoid(x.subspan(at, s.size()), s);
    for (size_t i = 0; i < s.size(); ++i) dx[at + i] = dy[at + i] * s[i] * (T(1) + x[at + i] * (T(1) - s[i]));
  });
}

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
      .cpu(swish_forward<float>, swish_forward<double>)
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
      .cpu(swish_gradient_of<float>, swish_gradient_of<double>)
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

template <class T>
void gelu_forward(const GeluArgs& a, In<T> x, Out<T> y) {
  if (a.fast_gelu) return each_element(x, y, 10, FastGeluValue<T>());
  each_element(x, y, 10, GeluValue<T>());
}

template <class T>
void gelu_gradient_of(const GeluArgs& a, In<T> dy, In<T> x, Out<T> dx) {
  if (a.fast_gelu) return each_element(dy, x, dx, 15, FastGeluSlope<T>());
  each_element(dy, x, dx, 15, GeluSlope<T>());
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
      .cpu(gelu_forward<float>, gelu_forward<double>)
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
      .cpu(gelu_gradient_of<float>, gelu_gradient_of<double>)
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("GeluGradient", {f.dy("dX"), f.x("X")}, f.forward_args());
                  })
      .derivative("X", gelu_second_derivative);
}

}  // namespace
}  // namespace stepnet::cpu_sigmoids
