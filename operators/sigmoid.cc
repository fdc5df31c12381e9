// Sigmoid: Y = 1 / (1 + exp(-X)), element by element.
//
// dX = dY Y (1 - Y). It reads Y, not X, so a step net may drop X after the forward pass.

#include <functional>

#include "core/operator.h"
#include "core/parallel.h"
#include "core/vector_math.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  auto range = [&](int64_t begin, int64_t end) {
    vec_sigmoid(x.subspan(begin, end - begin), y.subspan(begin, end - begin));
  };
  parallel_for(static_cast<int64_t>(x.size()), 1.0, std::ref(range));
}

template <class T>
void gradient(In<T> y, In<T> dy, Out<T> dx) {
  const T *v = y.data(), *d = dy.data();
  T* to = dx.data();
#pragma omp simd
  for (size_t i = 0; i < y.size(); ++i) to[i] = d[i] * v[i] * (T(1) - v[i]);
}

void infer_gradient(const NoArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "Y is {}, but dY {}", c.shape(0), c.shape(1));
  c.set_like(0, c.known(0) ? 0 : 1);
}

// d(dY Y (1 - Y)) / dY, times the outer gradient G: G dY (1 - 2 Y).
Gradient second_derivative(Formula& f) {
  const Value product = f.op("Mul", {f.dy("dX"), f.x("dY")});
  const Value scaled = f.op("Mul", {product, f.x("Y")});
  return f.op("Sub", {product, f.op("Add", {scaled, scaled})});
}

REGISTER(sigmoid) {
  return op("Sigmoid")
      .doc("Logistic function, element by element.")
      .input("X", "any shape")
      .output("Y", "1 / (1 + exp(-X))", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .fused({{FusedCode::sigmoid, 0}})
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("SigmoidGradient", {f.y("Y"), f.dy("Y")});
      });
}

REGISTER(sigmoid_gradient) {
  return op("SigmoidGradient")
      .doc("Gradient of Sigmoid, from its output.")
      .input("Y", "Sigmoid's output")
      .input("dY", "its gradient")
      .output("dX", "dY Y (1 - Y)")
      .in_place("dY", "dX", {"Y"})
      .shape(infer_gradient)
      .elementwise()
      .fused({{FusedCode::one_minus, 0}, {FusedCode::mul, 0, 2}, {FusedCode::mul, 1, 3}})
      .cpu(gradient<float>, gradient<double>)
      .derivative("Y", second_derivative)
      .derivative("dY", [](Formula& f) {
        return f.op("SigmoidGradient", {f.x("Y"), f.dy("dX")});
      });
}

}  // namespace
}  // namespace stepnet
