// Gelu: Y = X P(X), element by element, where P is the normal distribution function (1 + erf(X / sqrt 2)) / 2.
//
// dX = dY (P(X) + X p(X)), with the normal density p. It reads X.

#include "operators/pointwise/gelu.h"

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(const GeluArgs&, In<T> x, Out<T> y) {
  each_element(x, y, 10, GeluValue<T>());
}

template <class T>
void gradient(const GeluArgs&, In<T> dy, In<T> x, Out<T> dx) {
  each_element(dy, x, dx, 15, GeluSlope<T>());
}

void infer_gradient(const GeluArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "X is {}, but dY {}", c.shape(1), c.shape(0));
  c.set_like(0, c.known(0) ? 0 : 1);
}

// The density at X. Scale has a factor in float: the rest of the constant is added.
Value density(Formula& f, Value squares) {
  const Value bell = f.op("Exp", {f.op("Scale", {squares}, {make_arg("scale", -0.5F)})});
  const float most = static_cast<float>(kNormalDensityAtZero), rest = static_cast<float>(kNormalDensityAtZero - most);
  return f.op("Add",
              {f.op("Scale", {bell}, {make_arg("scale", most)}), f.op("Scale", {bell}, {make_arg("scale", rest)})});
}

// The derivative by X, times the outer gradient G: G dY p(X) (2 - X^2).
Gradient second_derivative(Formula& f) {
  const Value squares = f.op("Sqr", {f.x("X")});
  const Value product = f.op("Mul", {f.op("Mul", {f.dy("dX"), f.x("dY")}), density(f, squares)});
  return f.op("Sub", {f.op("Add", {product, product}), f.op("Mul", {product, squares})});
}

OpBuilder<GeluArgs>& add_args(OpBuilder<GeluArgs>& builder) {
  return builder.arg("fast_gelu", &GeluArgs::fast_gelu, false, "an approximation, which is not there",
                     ArgCheck<bool>([](const bool& fast) {
                       return std::string(fast ? "must be 0, as only the exact function is there" : "");
                     }));
}

REGISTER(gelu) {
  auto builder = op<GeluArgs>("Gelu");
  builder.doc("X times the normal distribution function of X, element by element.");
  return add_args(builder)
      .input("X", "any shape")
      .output("Y", "X (1 + erf(X / sqrt 2)) / 2", like("X"))
      .in_place("X", "Y", {"X"})
      .elementwise()
      .example({"X=3,4,-2..2"})
      .example({"X=0"})
      .flops(flops_per_output(4))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("GeluGradient", {f.dy("Y"), f.x("X")}, f.forward_args());
      });
}

REGISTER(gelu_gradient) {
  auto builder = op<GeluArgs>("GeluGradient");
  builder.doc("Gradient of Gelu, from its input.");
  return add_args(builder)
      .input("dY", "gradient of Y")
      .input("X", "Gelu's input")
      .output("dX", "dY (P(X) + X p(X))")
      .in_place("dY", "dX", {"X"})
      .shape(infer_gradient)
      .elementwise()
      .flops(flops_per_output(10))
      .cpu(gradient<float>, gradient<double>)
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("GeluGradient", {f.dy("dX"), f.x("X")}, f.forward_args());
                  })
      .derivative("X", second_derivative);
}

}  // namespace
}  // namespace stepnet
