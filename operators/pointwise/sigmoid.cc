// Sigmoid: Y = 1 / (1 + exp(-X)), element by element.
//
// dX = dY Y (1 - Y). It reads Y, not X, so a step net may drop X after the forward pass.

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  apply_activation(x, y, [](In<T> from, Out<T> to) { vec_sigmoid(from, to); });
}

template <class T>
void gradient(In<T> y, In<T> dy, Out<T> dx) {
  const T *v = y.data(), *d = dy.data();
  T* to = dx.data();
#pragma omp simd
  for (size_t i = 0; i < y.size(); ++i) to[i] = d[i] * v[i] * (T(1) - v[i]);
}

// d(dY Y (1 - Y)) / dY, times the outer gradient G: G dY (1 - 2 Y).
Gradient second_derivative(Formula& f) {
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
      .cpu(forward<float>, forward<double>);
}

REGISTER(sigmoid_gradient) {
  return activation_gradient("Sigmoid", second_derivative)
      .output("dX", "dY Y (1 - Y)")
      .in_place("dY", "dX", {"Y"})
      .fused({{FusedCode::one_minus, 0}, {FusedCode::mul, 0, 2}, {FusedCode::mul, 1, 3}})
      .flops(flops_per_output(3))
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
