// ReduceMax: the maximum over some dimensions; NaN where there is one. A maximum of nothing is an Error.
//
// dX = dY where X equals the maximum, and 0 elsewhere. Of equal elements each gets all of dY, as in the public format.
// It reads X and Y.

#include <functional>

#include "operators/reduce_axes.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_extreme(Reduction(a, call.in(0).shape()), x, y, least_value<T>(), std::greater<>());
}

REGISTER(reduce_max) {
  return reduction_op("ReduceMax", "the maxima", infer_nonempty_reduction)
      .doc("Maxima over some dimensions. NaN counts as greater than any number.")
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceMaxGradient", {f.dy("Y"), f.x("X"), f.y("Y")}, f.forward_args());
      });
}

REGISTER(reduce_max_gradient) {
  return reduction_gradient_op("ReduceMax", true, true)
      .cpu(extreme_gradient<float>, extreme_gradient<double>)
      .no_gradient("second derivatives of ReduceMax are not written");
}

}  // namespace
}  // namespace stepnet
