// Clip: Y = the nearest value to X from min to max, element by element; NaN stays NaN.
//
// dX = dY where min < Y < max, else 0, at the bounds too. It reads Y, not X, so a step net may drop X after the forward
// pass.

#include "operators/pointwise/clip.h"

#include "operators/pointwise/activation.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ClipArgs& a, In<T> x, Out<T> y) {
  each_element(x, y, 0.3, ClipValue<T>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

template <class T>
void gradient(const ClipArgs& a, In<T> y, In<T> dy, Out<T> dx) {
  each_element(y, dy, dx, 0.3, ClipSlope<T>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

void infer(const ClipArgs& a, ShapeCall& c) {
  require(a.min <= a.max, "min is {}, which is not at most max, {}", a.min, a.max);
  c.set_like(0, 0);
}

OpBuilder<ClipArgs>& add_args(OpBuilder<ClipArgs>& builder) {
  return builder.arg("min", &ClipArgs::min, ClipArgs().min, "the least value")
      .arg("max", &ClipArgs::max, ClipArgs().max, "the greatest value");
}

REGISTER(clip) {
  auto builder = activation<ClipArgs>("Clip");
  builder.doc("Brings every element between two bounds.");
  return add_args(builder)
      .output("Y", "X, or the bound that it is beyond")
      .shape(infer)
      .example({"X=3,4,-2..2"}, {"min=-0.5", "max=0.8"})
      .example({"X=3,4,-2..2"}, {"max=0"})
      .cpu(forward<float>, forward<double>);
}

REGISTER(clip_gradient) {
  auto builder = activation_gradient<ClipArgs>("Clip", [](Formula&) { return Gradient::none(); });
  return add_args(builder)
      .output("dX", "dY where min < Y < max, else 0")
      .in_place("dY", "dX")
      .cpu(gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet
