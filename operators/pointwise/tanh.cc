// Tanh: Y = tanh(X), element by element.
//
// dX = dY (1 - Y^2). It reads Y, not X, so a step net may drop X after the forward pass.

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  apply_activation(x, y, [](In<T> from, Out<T> to) { vec_tanh(from, to); });
}

template <class T>
void gradient(In<T> y, In<T> dy, Out<T> dx) {
  const T *v = y.data(), *d = dy.data();
  T* to = dx.data();
#pragma omp simd
  for (size_t i = 0; i < y.size(); ++i) to[i] = d[i] * (T(1) - v[i] * v[i]);
}

// d(dY (1 - Y^2)) / dY, times the outer gradient G: -2 G dY Y.
Gradient second_derivative(Formula& f) {
  const Value product = f.op("Mul", {f.op("Mul", {f.dy("dX"), f.x("dY")}), f.x("Y")});
  return f.op("Negative", {f.op("Add", {product, product})});
}

REGISTER(tanh) {
  return activation("Tanh")
      .doc("Hyperbolic tangent, element by element.")
      .output("Y", "tanh(X)", like("X"))
      .fused({{FusedCode::tanh, 0}})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>);
}

REGISTER(tanh_gradient) {
  return activation_gradient("Tanh", second_derivative)
      .output("dX", "dY (1 - Y^2)")
      .in_place("dY", "dX", {"Y"})
      .fused({{FusedCode::mul, 0, 0}, {FusedCode::one_minus, 2}, {FusedCode::mul, 1, 3}})
      .flops(flops_per_output(3))
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
