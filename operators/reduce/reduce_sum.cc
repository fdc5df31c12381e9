// ReduceSum: the sum over some dimensions; 0 where there is nothing to add.
//
// dX = dY, repeated along the dimensions that were reduced; of X only the shape is read. The derivative of that is
// ReduceSum again.

#include "core/operator/flops.h"
#include "operators/reduce/reduce_axes.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_sum(Reduction(a, call.in(0).shape()), x, y, [](auto v) { return v; });
}

template <class T>
void gradient(const ReduceArgs& a, In<T> dy, Out<T> dx, Call& call) {
  Reduction(a, call.in(1).shape()).each_element([&](int64_t i, int64_t j) { dx[i] = dy[j]; });
}

REGISTER(reduce_sum) {
  return reduction_op("ReduceSum", "the sums")
      .doc("Sums over some dimensions.")
      .flops(flops_per_input(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceSumGradient", {f.dy("Y"), f.x("X")}, f.forward_args());
      });
}

REGISTER(reduce_sum_gradient) {
  return reduction_gradient_op("ReduceSum", false, false)
      .cpu(gradient<float>, gradient<double>)
      .derivative("dY", [](Formula& f) { return f.op("ReduceSum", {f.dy("dX")}, f.forward_args()); })
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
