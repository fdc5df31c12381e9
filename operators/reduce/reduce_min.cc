// ReduceMin: the minimum over some dimensions; NaN where there is one. A minimum of nothing is an Error.
//
// dX = dY where X equals the minimum, and 0 elsewhere. Of equal elements each gets all of dY, as in the public format.
// It reads X and Y. They choose, and so have no part in its own derivative.

#include <functional>

#include "operators/reduce/reduce_axes.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_extreme(Reduction(a, call.in(0).shape()), x, y, greatest_value<T>(), std::less<>());
}

REGISTER(reduce_min) {
  return reduction_op("ReduceMin", "the minima", infer_nonempty_reduction)
      .doc(
          "Minima over some dimensions. NaN counts as less than any number. Each of several elements that equal the "
          "minimum gets the whole gradient.")
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceMinGradient", {f.dy("Y"), f.x("X"), f.y("Y")}, f.forward_args());
      });
}

REGISTER(reduce_min_gradient) {
  return reduction_gradient_op("ReduceMin", true, true)
      .cpu(extreme_gradient<float>, extreme_gradient<double>)
      .derivative("dY", [](Formula& f) { return extreme_second_derivative(f, "ReduceMin"); })
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
