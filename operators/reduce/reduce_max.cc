// ReduceMax: the maximum over some dimensions; NaN where there is one. A maximum of nothing is an Error.
//
// dX = dY where X equals the maximum, and 0 elsewhere. Of equal elements each gets all of dY, as in the public format.
// It reads X and Y. They choose, and so have no part in its own derivative.

#include <functional>

#include "operators/reduce/reduce_axes.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_extreme(Reduction(a, call.in(0).shape()), x, y, least_value<T>(), std::greater<>());
}

REGISTER(reduce_max) {
  return reduction_op("ReduceMax", "the maxima", infer_nonempty_reduction)
      .doc(
          "Maxima over some dimensions. NaN counts as greater than any number. Each of several elements that equal the "
          "maximum gets the whole gradient.")
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceMaxGradient", {f.dy("Y"), f.x("X"), f.y("Y")}, f.forward_args());
      });
}

REGISTER(reduce_max_gradient) {
  return reduction_gradient_op("ReduceMax", true, true)
      .cpu(extreme_gradient<float>, extreme_gradient<double>)
      .derivative("dY", [](Formula& f) { return extreme_second_derivative(f, "ReduceMax"); })
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
