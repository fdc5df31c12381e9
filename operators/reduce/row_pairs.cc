// Operators on pairs of rows: DotProduct, L1Distance and SquaredL2Distance.
#include "operators/reduce/row_pairs.h"

#include <cmath>

#include "core/operator/flops.h"

namespace stepnet::cpu_row_pairs {
namespace {

// DotProduct: Z[n] = sum(X[n] Y[n]), row by row.
//
// dX = Y dZ and dY = X dZ. Each reads only the values in its formula. The derivatives of that are both operators again.

template <class T>
void dot_product_forward(In<T> x, In<T> y, Out<T> z, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  each_row(rows, [&](int64_t n, int64_t first) {
    z[n] = static_cast<T>(row_dot(x.data() + first, y.data() + first, rows.size));
  });
}

template <class T>
void scale_rows(const AxisRows& rows, In<T> x, In<T> factors, Out<T> y) {
  each_row(rows, [&](int64_t n, int64_t first) {
    for (int64_t i = 0; i < rows.size; ++i) y[first + i] = x[first + i] * factors[n];
  });
}

template <class T>
void dot_product_gradient_of(In<T> x, In<T> y, In<T> dz, Out<T> dx, Out<T> dy, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  if (call.wants(0)) scale_rows(rows, y, dz, dx);
  if (call.wants(1)) scale_rows(rows, x, dz, dy);
}

// With u for the gradient of dX, and v for that of dY: of X it is v dZ, of Y u dZ, and of dZ u Y + v X, added by row.
std::vector<Gradient> dot_product_second_derivatives(Formula& f) {
  const Value u = f.dy("dX"), v = f.dy("dY"), dz = f.x("dZ");
  Gradient x, y, z;
  if (f.wants("X") && v.defined()) x = f.ops("DotProductGradient", {v, v, dz}, {}, {true, false})[0];
  if (f.wants("Y") && u.defined()) y = f.ops("DotProductGradient", {u, u, dz}, {}, {true, false})[0];
  if (f.wants("dZ")) {
    std::vector<Value> terms;
    if (u.defined()) terms.push_back(f.op("DotProduct", {u, f.x("Y")}));
    if (v.defined()) terms.push_back(f.op("DotProduct", {v, f.x("X")}));
    z = terms.size() == 1 ? terms[0] : f.op("Sum", terms);
  }
  return {x, y, z};
}

REGISTER(dot_product) {
  return pair_op("DotProduct", "the products of the rows")
      .doc(
          "Dot products of rows; of two vectors, given as [1, K], it is one number. X's gradient reads Y, and Y's "
          "reads X.")
      .flops(flops_per_input(2))
      .precision(Precision::float32)
      .cpu(dot_product_forward<float>, dot_product_forward<double>);
}

REGISTER(dot_product_gradient) {
  return pair_gradient_op("DotProduct", true)
      .flops([](const auto&, const ShapeCall& c) { return output_size(c, 0) + output_size(c, 1); })
      .cpu(dot_product_gradient_of<float>, dot_product_gradient_of<double>)
      .derivatives({"X", "Y", "dZ"}, dot_product_second_derivatives);
}

// L1Distance: Z[n] = sum(|X[n] - Y[n]|), row by row.
//
// dX = sign(X - Y) dZ, with 0 for the sign of 0, and dY = -dX. Both read X and Y, or the difference if that is an
// output, as it is on the tape. They change with dZ alone.

// Writes X - Y, unless nobody wants it.
template <class T>
void write_difference(In<T> x, In<T> y, Out<T> difference) {
  parallel_for(static_cast<int64_t>(difference.size()), 0.5, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) difference[i] = x[i] - y[i];
  });
}

template <class T>
void l1_distance_forward(In<T> x, In<T> y, Out<T> z, Out<T> difference, Call& call) {
  write_difference(x, y, difference);
  const AxisRows rows = pair_rows(call.in(0).shape());
  each_row(rows, [&](int64_t n, int64_t first) {
    double sum = 0;
    for (int64_t i = first; i < first + rows.size; ++i)
      sum += std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    z[n] = static_cast<T>(sum);
  });
}

template <class T>
void l1_distance_gradient_of(In<T> x, In<T> y, In<T> dz, Out<T> dx, Out<T> dy, Call& call) {
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
Gradient l1_distance_second_derivative(Formula& f) {
  return f.op("DotProduct", {gradient_of_difference(f), f.op("Sign", {f.op("Sub", {f.x("X"), f.x("Y")})})});
}

REGISTER(l1_distance) {
  const auto slope = [](Formula& f, Value difference) { return f.op("Sign", {difference}); };
  return distance_op("L1Distance", "the distances", slope)
      .doc("Sums of the absolute differences of rows.")
      .flops(flops_per_input(2))
      .precision(Precision::float32)
      .cpu(l1_distance_forward<float>, l1_distance_forward<double>);
}

REGISTER(l1_distance_gradient) {
  return pair_gradient_op("L1Distance")
      .cpu(l1_distance_gradient_of<float>, l1_distance_gradient_of<double>)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("dZ", l1_distance_second_derivative);
}

// SquaredL2Distance: Z[n] = sum((X[n] - Y[n])^2) / 2, row by row.
//
// dX = (X - Y) dZ and dY = -dX. Both read X and Y, or the difference if that is an output, as it is on the tape. The
// derivatives of that are dot products and their gradients.

template <class T>
void squared_l2_distance_forward(In<T> x, In<T> y, Out<T> z, Out<T> difference, Call& call) {
  write_difference(x, y, difference);
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
void squared_l2_distance_gradient_of(In<T> x, In<T> y, In<T> dz, Out<T> dx, Out<T> dy, Call& call) {
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
std::vector<Gradient> squared_l2_distance_second_derivatives(Formula& f) {
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
  const auto slope = [](Formula&, Value difference) { return difference; };
  return distance_op("SquaredL2Distance", "half the squared distances", slope)
      .doc("Half the squared Euclidean distances of rows.")
      .flops([](const auto&, const ShapeCall& c) { return 3 * input_size(c, 0) + output_size(c, 0); })
      .precision(Precision::float32)
      .cpu(squared_l2_distance_forward<float>, squared_l2_distance_forward<double>);
}

REGISTER(squared_l2_distance_gradient) {
  return pair_gradient_op("SquaredL2Distance")
      .flops(flops_per_input(2))
      .cpu(squared_l2_distance_gradient_of<float>, squared_l2_distance_gradient_of<double>)
      .derivatives({"X", "Y", "dZ"}, squared_l2_distance_second_derivatives);
}

}  // namespace
}  // namespace stepnet::cpu_row_pairs
