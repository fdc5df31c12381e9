// Log: Y = ln(X), element by element; minus infinity of 0, NaN of what is negative. dX = dY / X.

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  apply_activation(x, y, [](In<T> from, Out<T> to) { vec_log(from, to); });
}

REGISTER(log) {
  return op("Log")
      .doc("The natural logarithm, element by element.")
      .input("X", "any shape")
      .output("Y", "ln(X)", like("X"))
      .in_place("X", "Y", {"X"})
      .elementwise()
      .example({"X=3,4,0.5..2"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("Div", {f.dy("Y"), f.x("X")});
      });
}

}  // namespace
}  // namespace stepnet
