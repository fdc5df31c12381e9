// Exp: Y = exp(X), element by element.
//
// dX = dY Y. It reads Y, not X, so a step net may drop X after the forward pass.

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  apply_activation(x, y, [](In<T> from, Out<T> to) { vec_exp(from, to); });
}

REGISTER(exp) {
  return op("Exp")
      .doc("The exponential function, element by element.")
      .input("X", "any shape")
      .output("Y", "exp(X)", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .example({"X=3,4,-2..2"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("Mul", {f.dy("Y"), f.y("Y")});
      });
}

}  // namespace
}  // namespace stepnet
