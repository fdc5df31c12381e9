// ScaleBy: Y = factor * X. An operator outside Stepnet, built as a library of its own, to test that one can be loaded.
//
// dX = factor * dY. It reads dY only.
#include "core/operator.h"

namespace stepnet {
namespace {

struct Args {
  float factor;
};

template <class T>
void forward(const Args& args, In<T> x, Out<T> y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] = static_cast<T>(args.factor) * x[i];
}

REGISTER(scale_by) {
  return op<Args>("ScaleBy")
      .doc("Multiplies every element by a constant.")
      .arg("factor", &Args::factor, 2.0f, "what to multiply by")
      .input("X", "any shape")
      .output("Y", "factor * X", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) -> Gradient { return f.op("ScaleBy", {f.dy("Y")}, f.forward_args()); });
}

}  // namespace
}  // namespace stepnet
