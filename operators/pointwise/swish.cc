// Swish: Y = X s(X), element by element, with the logistic function s.
//
// dX = dY s(X) (1 + X (1 - s(X))). It reads X. SwishGradient has Y among its inputs, as the public format does, but of
// it only the shape.

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  each_piece<T>(x.size(), 1.0, [&](int64_t at, Out<T> s) {
    vec_sigmoid(x.subspan(at, s.size()), s);
    for (size_t i = 0; i < s.size(); ++i) y[at + i] = x[at + i] * s[i];
  });
}

template <class T>
void gradient(In<T> x, In<T>, In<T> dy, Out<T> dx) {
  each_piece<T>(x.size(), 1.5, [&](int64_t at, Out<T> s) {
    vec_sigmoid(x.subspan(at, s.size()), s);
    for (size_t i = 0; i < s.size(); ++i) dx[at + i] = dy[at + i] * s[i] * (T(1) + x[at + i] * (T(1) - s[i]));
  });
}

void infer_gradient(const NoArgs&, ShapeCall& c) {
  for (const int i : {1, 2})
    if (c.known(0) && c.known(i))
      require(c.shape(0) == c.shape(i), "X is {}, but {} {}", c.shape(0), i == 1 ? "Y" : "dY", c.shape(i));
  c.set_like(0, c.known(0) ? 0 : 2);
}

// The derivative by X, times the outer gradient G: G dY s (1 - s) (2 + X (1 - 2 s)).
Gradient second_derivative(Formula& f) {
  const Value s = f.op("Sigmoid", {f.x("X")});
  const Value product = f.op("Mul", {f.dy("dX"), f.x("dY")});
  const Value line = f.op("Mul", {product, f.x("X")});
  const Value bent = f.op("Scale", {f.op("Mul", {line, s})}, {make_arg("scale", 2.0F)});
  const Value factor = f.op("Add", {f.op("Add", {product, product}), f.op("Sub", {line, bent})});
  return f.op("SigmoidGradient", {s, factor});
}

REGISTER(swish) {
  return op("Swish")
      .doc("X times the logistic function of X, element by element.")
      .input("X", "any shape")
      .output("Y", "X / (1 + exp(-X))", like("X"))
      .elementwise()
      .example({"X=3,4,-2..2"})
      .example({"X=0"})
      .flops(flops_per_output(3))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("SwishGradient", {f.x("X"), f.y("Y"), f.dy("Y")});
      });
}

REGISTER(swish_gradient) {
  return op("SwishGradient")
      .doc("Gradient of Swish, from its input.")
      .input("X", "Swish's input")
      .input("Y", "Swish's output, whose values are not read")
      .shape_only()
      .input("dY", "gradient of Y")
      .output("dX", "dY s(X) (1 + X (1 - s(X)))")
      .in_place("dY", "dX", {"X"})
      .shape(infer_gradient)
      .elementwise()
      .flops(flops_per_output(8))
      .cpu(gradient<float>, gradient<double>)
      .derivative("X", second_derivative)
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("dY", [](Formula& f) {
        return f.op("SwishGradient", {f.x("X"), f.x("Y"), f.dy("dX")});
      });
}

}  // namespace
}  // namespace stepnet
