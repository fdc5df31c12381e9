// Abs: Y = |X|, element by element.
//
// dX = dY where X > 0, -dY where X < 0, and 0 where X is 0. It reads X.

#include "operators/pointwise/unary.h"

#include <cmath>

#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  each_element(x, y, 0.3, [](T v) { return std::abs(v); });
}

template <class T>
void gradient(In<T> x, In<T> dy, Out<T> dx) {
  each_element(x, dy, dx, 0.3, AbsSlope<T>());
}

REGISTER(abs) {
  return activation("Abs", "X")
      .doc("The absolute value, element by element.")
      .output("Y", "|X|", like("X"))
      .cpu(forward<float>, forward<double>);
}

REGISTER(abs_gradient) {
  return activation_gradient(
             "Abs", [](Formula&) { return Gradient::none(); }, "X")
      .output("dX", "dY with the sign of X")
      .in_place("dY", "dX")
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
