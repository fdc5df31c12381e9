// Relu: Y = max(X, 0), element by element.
//
// dX = dY where Y > 0, else 0. It reads Y, not X, so a step net may drop X after the forward pass.

#include "core/operator.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  const T* from = x.data();
  T* to = y.data();
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) to[i] = from[i] < T(0) ? T(0) : from[i];  // NaN stays NaN
}

template <class T>
void gradient(In<T> y, In<T> dy, Out<T> dx) {
  const T *v = y.data(), *d = dy.data();
  T* to = dx.data();
#pragma omp simd
  for (size_t i = 0; i < y.size(); ++i) to[i] = v[i] > T(0) ? d[i] : T(0);
}

void infer_gradient(const NoArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "Y is {}, but dY {}", c.shape(0), c.shape(1));
  c.set_like(0, c.known(0) ? 0 : 1);
}

REGISTER(relu) {
  return op("Relu")
      .doc("The larger of X and 0, element by element.")
      .input("X", "any shape")
      .output("Y", "max(X, 0)", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .fused({{FusedCode::relu, 0}})
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReluGradient", {f.y("Y"), f.dy("Y")});
      });
}

REGISTER(relu_gradient) {
  return op("ReluGradient")
      .doc("Gradient of Relu, from its output.")
      .input("Y", "Relu's output")
      .input("dY", "its gradient")
      .output("dX", "dY where Y > 0, else 0")
      .in_place("dY", "dX")
      .shape(infer_gradient)
      .elementwise()
      .fused({{FusedCode::if_positive, 0, 1}})
      .cpu(gradient<float>, gradient<double>)
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("dY", [](Formula& f) {
        return f.op("ReluGradient", {f.x("Y"), f.dy("dX")});
      });
}

}  // namespace
}  // namespace stepnet
