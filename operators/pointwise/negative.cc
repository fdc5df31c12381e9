// Negative: Y = -X, element by element. dX = -dY; nothing is read.

#include "core/operator/operator.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  const T* from = x.data();
  T* to = y.data();
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) to[i] = -from[i];
}

REGISTER(negative) {
  return op("Negative")
      .doc("The negative, element by element.")
      .input("X", "any shape")
      .output("Y", "-X", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .fused({{FusedCode::negative, 0}})
      .example({"X=3,4,-2..2"})
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("X", [](Formula& f) { return f.op("Negative", {f.dy("Y")}); });
}

}  // namespace
}  // namespace stepnet
