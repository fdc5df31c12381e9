// Activations that are X where it is large and bounded, or nearly so, below: Relu, LeakyRelu, Elu and Softplus; and
// Clip, with a bound on either side.
#include "operators/pointwise/rectifiers.h"

#include <cmath>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet::cpu_rectifiers {
namespace {

// Relu: Y = max(X, 0), element by element.
//
// dX = dY where Y > 0, else 0. It reads Y, not X, so a step net may drop X after the forward pass.

template <class T>
void relu_forward(In<T> x, Out<T> y) {
  const T* from = x.data();
  T* to = y.data();
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) to[i] = from[i] < T(0) ? T(0) : from[i];  // NaN stays NaN
}

template <class T>
void relu_gradient_of(In<T> y, In<T> dy, Out<T> dx) {
  const T *v = y.data(), *d = dy.data();
  T* to = dx.data();
#pragma omp simd
  for (size_t i = 0; i < y.size(); ++i) to[i] = v[i] > T(0) ? d[i] : T(0);
}

REGISTER(relu) {
  return activation("Relu")
      .doc("The larger of X and 0, element by element.")
      .output("Y", "max(X, 0)", like("X"))
      .fused({{FusedCode::relu, 0}})
      .cpu(relu_forward<float>, relu_forward<double>);
}

REGISTER(relu_gradient) {
  auto builder = activation_gradient("Relu", zero_by_read);
  return accept_broadcast_args(builder)
      .output("dX", "dY where Y > 0, else 0")
      .in_place("dY", "dX")
      .fused({{FusedCode::if_positive, 0, 1}})
      .cpu(relu_gradient_of<float>, relu_gradient_of<double>);
}

// LeakyRelu: Y = X where X > 0, else alpha X.
//
// dX = dY where X > 0, else alpha dY. X and Y are positive in the same places unless alpha is negative, so it reads Y,
// or with a negative alpha X.

template <class T>
void leaky_relu_forward(const LeakyReluArgs& a, In<T> x, Out<T> y) {
  each_element(x, y, 0.3, LeakyReluValue<T>{static_cast<T>(a.alpha)});
}

template <class T>
void leaky_relu_gradient_of(const LeakyReluArgs& a, In<T> y, In<T> dy, Out<T> dx) {
  each_element(y, dy, dx, 0.3, LeakyReluSlope<T>{static_cast<T>(a.alpha)});
}

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
      .cpu(leaky_relu_forward<float>, leaky_relu_forward<double>)
      .derivative("X", leaky_relu_derivative);
}

REGISTER(leaky_relu_gradient) {
  return activation_gradient<LeakyReluArgs>("LeakyRelu", zero_by_read)
      .arg("alpha", &LeakyReluArgs::alpha, 0.01F, "as LeakyRelu's; of a negative one the first input is X")
      .output("dX", "dY where Y > 0, else alpha dY")
      .in_place("dY", "dX")
      .flops(flops_per_output(1))
      .cpu(leaky_relu_gradient_of<float>, leaky_relu_gradient_of<double>);
}

// Elu: Y = X where X > 0, else alpha (exp(X) - 1); alpha is not negative.
//
// dX = dY where Y > 0, else dY (Y + alpha). It reads Y, not X, so a step net may drop X after the forward pass.

template <class T>
void elu_forward(const EluArgs& a, In<T> x, Out<T> y) {
  const T alpha = static_cast<T>(a.alpha);
  each_piece<T>(x.size(), 1.5, [&](int64_t at, Out<T> curved) {
    const T* from = x.data() + at;
    T* to = y.data() + at;
    for (size_t i = 0; i < curved.size(); ++i) curved[i] = from[i] > T(0) ? T(0) : from[i];
    vec_expm1(curved, curved);
    for (size_t i = 0; i < curved.size(); ++i) to[i] = from[i] > T(0) ? from[i] : alpha * curved[i];
  });
}

template <class T>
void elu_gradient_of(const EluArgs& a, In<T> y, In<T> dy, Out<T> dx) {
  each_element(y, dy, dx, 0.3, EluSlope<T>{static_cast<T>(a.alpha)});
}

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
      .cpu(elu_forward<float>, elu_forward<double>);
}

REGISTER(elu_gradient) {
  auto builder = activation_gradient<EluArgs>("Elu", elu_second_derivative);
  return accept_broadcast_args(builder)
      .arg("alpha", &EluArgs::alpha, 1.0F, "as Elu's", float_at_least(0))
      .output("dX", "dY where Y > 0, else dY (Y + alpha)")
      .in_place("dY", "dX", {"Y"})
      .flops(flops_per_output(2))
      .cpu(elu_gradient_of<float>, elu_gradient_of<double>);
}

// Softplus: Y = ln(1 + exp(X)), element by element, computed as max(X, 0) + ln(1 + exp(-|X|)), which never overflows.
//
// dX = dY (1 - exp(-Y)), which is dY times the logistic function of X. It reads Y, not X, so a step net may drop X
// after the forward pass.

template <class T>
void softplus_forward(In<T> x, Out<T> y) {
  each_piece<T>(x.size(), 3.0, [&](int64_t at, Out<T> rest) {
    const T* from = x.data() + at;
    T* to = y.data() + at;
    for (size_t i = 0; i < rest.size(); ++i) rest[i] = -std::abs(from[i]);
    vec_exp(rest, rest);
    vec_log1p(rest, rest);
    for (size_t i = 0; i < rest.size(); ++i) to[i] = (from[i] > T(0) ? from[i] : T(0)) + rest[i];
  });
}

template <class T>
void softplus_gradient_of(In<T> y, In<T> dy, Out<T> dx) {
  each_piece<T>(y.size(), 1.5, [&](int64_t at, Out<T> slope) {
    const T *from = y.data() + at, *d = dy.data() + at;
    T* to = dx.data() + at;
    for (size_t i = 0; i < slope.size(); ++i) slope[i] = -from[i];
    vec_expm1(slope, slope);
    for (size_t i = 0; i < slope.size(); ++i) to[i] = -d[i] * slope[i];
  });
}

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
      .cpu(softplus_forward<float>, softplus_forward<double>);
}

REGISTER(softplus_gradient) {
  return activation_gradient("Softplus", softplus_second_derivative)
      .output("dX", "dY (1 - exp(-Y))")
      .in_place("dY", "dX", {"Y"})
      .flops(flops_per_output(3))
      .cpu(softplus_gradient_of<float>, softplus_gradient_of<double>);
}

// Clip: Y = the nearest value to X from min to max, element by element; NaN stays NaN.
//
// dX = dY where min < Y < max, else 0, at the bounds too. It reads Y, not X, so a step net may drop X after the forward
// pass.

template <class T>
void clip_forward(const ClipArgs& a, In<T> x, Out<T> y) {
  each_element(x, y, 0.3, ClipValue<T>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

template <class T>
void clip_gradient_of(const ClipArgs& a, In<T> y, In<T> dy, Out<T> dx) {
  each_element(y, dy, dx, 0.3, ClipSlope<T>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

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
      .cpu(clip_forward<float>, clip_forward<double>);
}

REGISTER(clip_gradient) {
  auto builder = activation_gradient<ClipArgs>("Clip", zero_by_read);
  return add_clip_args(builder)
      .output("dX", "dY where min < Y < max, else 0")
      .in_place("dY", "dX")
      .cpu(clip_gradient_of<float>, clip_gradient_of<double>);
}

}  // namespace
}  // namespace stepnet::cpu_rectifiers
