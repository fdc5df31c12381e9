// Sqrt: Y = the square root of X, element by element; NaN of what is negative.
//
// dX = dY / (2 Y), which is infinite at 0. It reads Y, not X, so a step net may drop X after the forward pass.

#include <cmath>

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  each_element(x, y, 1.0, [](T v) { return std::sqrt(v); });
}

REGISTER(sqrt) {
  return op("Sqrt")
      .doc("The square root, element by element.")
      .input("X", "any shape")
      .output("Y", "sqrt(X)", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .example({"X=3,4,0.5..2"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("Scale", {f.op("Div", {f.dy("Y"), f.y("Y")})}, {make_arg("scale", 0.5F)});
      });
}

}  // namespace
}  // namespace stepnet
