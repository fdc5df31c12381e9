// Scale: Y = scale X, element by element. dX = scale dY; nothing is read.

#include "operators/pointwise/scale.h"

#include "core/operator/flops.h"
#include "core/operator/operator.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ScaleArgs& a, In<T> x, Out<T> y) {
  const T factor = static_cast<T>(a.scale);
  const T* from = x.data();
  T* to = y.data();
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) to[i] = factor * from[i];
}

REGISTER(scale) {
  return op<ScaleArgs>("Scale")
      .doc("Multiplies every element by a constant.")
      .arg("scale", &ScaleArgs::scale, 1.0F, "the constant")
      .input("X", "any shape")
      .output("Y", "scale * X", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .fused([](const ScaleArgs& a, int) {
        return FusedBody{{FusedCode::scale, 0, 0, a.scale}};
      })
      .example({"X=3,4"}, {"scale=-0.7"})
      .example({"X=0,3"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) { return f.op("Scale", {f.dy("Y")}, f.forward_args()); });
}

}  // namespace
}  // namespace stepnet
