// Sign: Y = 1 where X > 0, -1 where X < 0, else 0. Gradients end here: the derivative is 0 almost everywhere.

#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  each_element(x, y, 0.3, [](T v) { return static_cast<T>((v > T(0)) - (v < T(0))); });
}

REGISTER(sign) {
  return op("Sign")
      .doc("The sign of every element: 1, -1 or 0.")
      .input("X", "any shape")
      .output("Y", "1 where X > 0, -1 where X < 0, else 0", like("X"))
      .elementwise()
      .example({"X=3,4,-2..2"})
      .example({"X=int32,5:-2,-1,0,1,2"})
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
