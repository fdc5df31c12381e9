// ReduceL2: the square root of the sum of squares over some dimensions; 0 where there is nothing to add.
//
// dX = X / Y dY, and 0 where Y is 0. It reads X and Y. Squares are added in X's type, so norms of floats are right
// between about 1e-18 and 1e19.

#include "operators/reduce_axes.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_sum(Reduction(a, call.in(0).shape()), x, y, [](auto v) { return v * v; });
  for (T& value : y) value = std::sqrt(value);
}

template <class T>
void gradient(const ReduceArgs& a, In<T> dy, In<T> x, In<T> y, Out<T> dx, Call& call) {
  Reduction(a, call.in(1).shape()).each_element([&](int64_t i, int64_t j) {
    dx[i] = y[j] == 0 ? T(0) : x[i] / y[j] * dy[j];
  });
}

REGISTER(reduce_l2) {
  return reduction_op("ReduceL2", "the norms")
      .doc("Euclidean norms over some dimensions.")
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceL2Gradient", {f.dy("Y"), f.x("X"), f.y("Y")}, f.forward_args());
      });
}

REGISTER(reduce_l2_gradient) {
  return reduction_gradient_op("ReduceL2", true, true)
      .cpu(gradient<float>, gradient<double>)
      .no_gradient("second derivatives of ReduceL2 are not written");
}

}  // namespace
}  // namespace stepnet
