// Not: Y is true where X is false, element by element. Gradients end here.

#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

void forward(In<bool> x, Out<bool> y) {
  each_element(x, y, 0.1, [](bool v) { return !v; });
}

REGISTER(logical_not) {
  return op("Not")
      .doc("Where X is false, element by element.")
      .input("X", "bools, any shape")
      .output("Y", "true where X is false", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .example({"X=bool,3,4"})
      .cpu(forward)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
