// ReduceL1: the sum of absolute values over some dimensions; 0 where there is nothing to add.
//
// dX = sign(X) dY, with 0 for the sign of 0. It reads X. With u for its gradient, that of dY is the sum of sign(X) u.

#include "core/operator/flops.h"
#include "operators/reduce/reduce_axes.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_sum(Reduction(a, call.in(0).shape()), x, y, [](auto v) { return std::abs(v); });
}

template <class T>
void gradient(const ReduceArgs& a, In<T> dy, In<T> x, Out<T> dx, Call& call) {
  Reduction(a, call.in(1).shape()).each_element([&](int64_t i, int64_t j) {
    dx[i] = x[i] > 0 ? dy[j] : x[i] < 0 ? -dy[j] : T(0);
  });
}

REGISTER(reduce_l1) {
  return reduction_op("ReduceL1", "the sums")
      .doc("Sums of absolute values over some dimensions. The gradient of an element of 0 is 0.")
      .flops(flops_per_input(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceL1Gradient", {f.dy("Y"), f.x("X")}, f.forward_args());
      });
}

REGISTER(reduce_l1_gradient) {
  return reduction_gradient_op("ReduceL1", true, false)
      .cpu(gradient<float>, gradient<double>)
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("ReduceSum", {f.op("Mul", {f.dy("dX"), f.op("Sign", {f.x("X")})})}, f.forward_args());
                  })
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
