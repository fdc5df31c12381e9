// Elu: Y = X where X > 0, else alpha (exp(X) - 1); alpha is not negative.
//
// dX = dY where Y > 0, else dY (Y + alpha). It reads Y, not X, so a step net may drop X after the forward pass.

#include "operators/pointwise/elu.h"

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(const EluArgs& a, In<T> x, Out<T> y) {
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
void gradient(const EluArgs& a, In<T> y, In<T> dy, Out<T> dx) {
  each_element(y, dy, dx, 0.3, EluSlope<T>{static_cast<T>(a.alpha)});
}

// d(dY (Y + alpha)) / dY, times the outer gradient G: G dY where Y < 0.
Gradient second_derivative(Formula& f) {
  return f.op("ReluGradient", {f.op("Negative", {f.x("Y")}), f.op("Mul", {f.dy("dX"), f.x("dY")})});
}

REGISTER(elu) {
  return activation<EluArgs>("Elu")
      .doc("X where it is positive, else alpha (exp(X) - 1).")
      .arg("alpha", &EluArgs::alpha, 1.0F, "minus the limit for small X", float_at_least(0))
      .output("Y", "X where X > 0, else alpha (exp(X) - 1)", like("X"))
      .example({"X=3,4,-2..2"}, {"alpha=0.5"})
      .flops(flops_per_output(3))
      .cpu(forward<float>, forward<double>);
}

REGISTER(elu_gradient) {
  return activation_gradient<EluArgs>("Elu", second_derivative)
      .arg("alpha", &EluArgs::alpha, 1.0F, "as Elu's", float_at_least(0))
      .output("dX", "dY where Y > 0, else dY (Y + alpha)")
      .in_place("dY", "dX", {"Y"})
      .flops(flops_per_output(2))
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
