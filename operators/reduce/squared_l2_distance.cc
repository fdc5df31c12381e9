// SquaredL2Distance: Z[n] = sum((X[n] - Y[n])^2) / 2, row by row.
//
// dX = (X - Y) dZ and dY = -dX. Both read X and Y. The derivatives of that are dot products and their gradients.

#include "core/operator/flops.h"
#include "operators/reduce/row_pairs.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, In<T> y, Out<T> z, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  each_row(rows, [&](int64_t n, int64_t first) {
    double sum = 0;
    for (int64_t i = first; i < first + rows.size; ++i) {
      const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
      sum += difference * difference;
    }
    z[n] = static_cast<T>(sum / 2);
  });
}

template <class T>
void gradient(In<T> x, In<T> y, In<T> dz, Out<T> dx, Out<T> dy, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  const bool wants_dx = call.wants(0), wants_dy = call.wants(1);
  each_row(rows, [&](int64_t n, int64_t first) {
    for (int64_t i = first; i < first + rows.size; ++i) {
      const T slope = (x[i] - y[i]) * dz[n];
      if (wants_dx) dx[i] = slope;
      if (wants_dy) dy[i] = -slope;
    }
  });
}

// With w for the gradient of dX less that of dY: of X it is w dZ, of Y -w dZ, and of dZ w (X - Y), added by row.
std::vector<Gradient> second_derivatives(Formula& f) {
  const Value w = gradient_of_difference(f);
  Gradient x, y, z;
  if (f.wants("X") || f.wants("Y")) {
    const Value slope = f.ops("DotProductGradient", {w, w, f.x("dZ")}, {}, {true, false})[0];
    if (f.wants("X")) x = slope;
    if (f.wants("Y")) y = f.op("Negative", {slope});
  }
  if (f.wants("dZ")) z = f.op("DotProduct", {w, f.op("Sub", {f.x("X"), f.x("Y")})});
  return {x, y, z};
}

REGISTER(squared_l2_distance) {
  return pair_op("SquaredL2Distance", "half the squared distances")
      .doc("Half the squared Euclidean distances of rows.")
      .flops([](const auto&, const ShapeCall& c) { return 3 * input_size(c, 0) + output_size(c, 0); })
      .cpu(forward<float>, forward<double>);
}

REGISTER(squared_l2_distance_gradient) {
  return pair_gradient_op("SquaredL2Distance")
      .flops(flops_per_input(2))
      .cpu(gradient<float>, gradient<double>)
      .derivatives({"X", "Y", "dZ"}, second_derivatives);
}

}  // namespace
}  // namespace stepnet
