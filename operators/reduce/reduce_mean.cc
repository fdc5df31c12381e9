// ReduceMean: the mean over some dimensions; 0 where there is nothing to take it of, as in AveragedLoss.
//
// dX = dY / n, repeated along the dimensions that were reduced, for n elements per mean; of X only the shape is read.
// The derivative of that is ReduceMean again.

#include "core/operator/flops.h"
#include "operators/reduce/reduce_axes.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  const Reduction reduction(a, call.in(0).shape());
  reduce_sum(reduction, x, y, [](auto v) { return v; });
  if (reduction.per_value() == 0) return;
  for (T& value : y) value /= static_cast<T>(reduction.per_value());
}

template <class T>
void gradient(const ReduceArgs& a, In<T> dy, Out<T> dx, Call& call) {
  const Reduction reduction(a, call.in(1).shape());
  const T count = static_cast<T>(reduction.per_value());
  reduction.each_element([&](int64_t i, int64_t j) { dx[i] = dy[j] / count; });
}

REGISTER(reduce_mean) {
  return reduction_op("ReduceMean", "the means; 0 for those of nothing")
      .doc("Means over some dimensions.")
      .flops([](const auto&, const ShapeCall& c) { return input_size(c, 0) + output_size(c, 0); })
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceMeanGradient", {f.dy("Y"), f.x("X")}, f.forward_args());
      });
}

REGISTER(reduce_mean_gradient) {
  return reduction_gradient_op("ReduceMean", false, false)
      .flops(flops_per_input(1))
      .cpu(gradient<float>, gradient<double>)
      .derivative("dY", [](Formula& f) { return f.op("ReduceMean", {f.dy("dX")}, f.forward_args()); })
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
