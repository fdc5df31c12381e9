// Sqr: Y = X^2, element by element. dX = 2 X dY.

#include "core/operator/flops.h"
#include "core/operator/operator.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  const T* from = x.data();
  T* to = y.data();
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) to[i] = from[i] * from[i];
}

REGISTER(sqr) {
  return op("Sqr")
      .doc("The square, element by element.")
      .input("X", "any shape")
      .output("Y", "X * X", like("X"))
      .in_place("X", "Y", {"X"})
      .elementwise()
      .example({"X=3,4,-2..2"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        const Value half = f.op("Mul", {f.dy("Y"), f.x("X")});
        return f.op("Add", {half, half});
      });
}

}  // namespace
}  // namespace stepnet
