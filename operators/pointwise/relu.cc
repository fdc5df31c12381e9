// Relu: Y = max(X, 0), element by element.
//
// dX = dY where Y > 0, else 0. It reads Y, not X, so a step net may drop X after the forward pass.

#include "operators/pointwise/activation.h"

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

REGISTER(relu) {
  return activation("Relu")
      .doc("The larger of X and 0, element by element.")
      .output("Y", "max(X, 0)", like("X"))
      .fused({{FusedCode::relu, 0}})
      .cpu(forward<float>, forward<double>);
}

REGISTER(relu_gradient) {
  return activation_gradient("Relu", zeros_like_read)
      .output("dX", "dY where Y > 0, else 0")
      .in_place("dY", "dX")
      .fused({{FusedCode::if_positive, 0, 1}})
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
