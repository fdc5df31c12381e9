// Softplus: Y = ln(1 + exp(X)), element by element, computed as max(X, 0) + ln(1 + exp(-|X|)), which never overflows.
//
// dX = dY (1 - exp(-Y)), which is dY times the logistic function of X. It reads Y, not X, so a step net may drop X
// after the forward pass.

#include <cmath>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
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
void gradient(In<T> y, In<T> dy, Out<T> dx) {
  each_piece<T>(y.size(), 1.5, [&](int64_t at, Out<T> slope) {
    const T *from = y.data() + at, *d = dy.data() + at;
    T* to = dx.data() + at;
    for (size_t i = 0; i < slope.size(); ++i) slope[i] = -from[i];
    vec_expm1(slope, slope);
    for (size_t i = 0; i < slope.size(); ++i) to[i] = -d[i] * slope[i];
  });
}

// d(dY (1 - exp(-Y))) / dY, times the outer gradient G: G dY exp(-Y).
Gradient second_derivative(Formula& f) {
  const Value rest = f.op("Exp", {f.op("Negative", {f.x("Y")})});
  return f.op("Mul", {f.op("Mul", {f.dy("dX"), f.x("dY")}), rest});
}

REGISTER(softplus) {
  return activation("Softplus")
      .doc("ln(1 + exp(X)), element by element: a smooth Relu.")
      .output("Y", "ln(1 + exp(X))", like("X"))
      .flops(flops_per_output(3))
      .cpu(forward<float>, forward<double>);
}

REGISTER(softplus_gradient) {
  return activation_gradient("Softplus", second_derivative)
      .output("dX", "dY (1 - exp(-Y))")
      .in_place("dY", "dX", {"Y"})
      .flops(flops_per_output(3))
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
