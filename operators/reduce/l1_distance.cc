// L1Distance: Z[n] = sum(|X[n] - Y[n]|), row by row.
//
// dX = sign(X - Y) dZ, with 0 for the sign of 0, and dY = -dX. Both read X and Y. They change with dZ alone.

#include <cmath>

#include "core/operator/flops.h"
#include "operators/reduce/row_pairs.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, In<T> y, Out<T> z, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  each_row(rows, [&](int64_t n, int64_t first) {
    double sum = 0;
    for (int64_t i = first; i < first + rows.size; ++i)
      sum += std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    z[n] = static_cast<T>(sum);
  });
}

template <class T>
void gradient(In<T> x, In<T> y, In<T> dz, Out<T> dx, Out<T> dy, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  const bool wants_dx = call.wants(0), wants_dy = call.wants(1);
  each_row(rows, [&](int64_t n, int64_t first) {
    for (int64_t i = first; i < first + rows.size; ++i) {
      const T slope = x[i] > y[i] ? dz[n] : x[i] < y[i] ? -dz[n] : T(0);
      if (wants_dx) dx[i] = slope;
      if (wants_dy) dy[i] = -slope;
    }
  });
}

// With w for the gradient of dX less that of dY: of dZ it is w sign(X - Y), added by row.
Gradient second_derivative(Formula& f) {
  return f.op("DotProduct", {gradient_of_difference(f), f.op("Sign", {f.op("Sub", {f.x("X"), f.x("Y")})})});
}

REGISTER(l1_distance) {
  return pair_op("L1Distance", "the distances")
      .doc("Sums of the absolute differences of rows.")
      .flops(flops_per_input(2))
      .cpu(forward<float>, forward<double>);
}

REGISTER(l1_distance_gradient) {
  return pair_gradient_op("L1Distance")
      .cpu(gradient<float>, gradient<double>)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("dZ", second_derivative);
}

}  // namespace
}  // namespace stepnet
