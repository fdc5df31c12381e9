// DotProduct: Z[n] = sum(X[n] Y[n]), row by row.
//
// dX = Y dZ and dY = X dZ. Each reads only the values in its formula. The derivatives of that are both operators again.

#include "core/operator/flops.h"
#include "operators/reduce/row_pairs.h"

namespace stepnet {
namespace {

template <class T>
void forward(In<T> x, In<T> y, Out<T> z, Call& call) {
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
void gradient(In<T> x, In<T> y, In<T> dz, Out<T> dx, Out<T> dy, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  if (call.wants(0)) scale_rows(rows, y, dz, dx);
  if (call.wants(1)) scale_rows(rows, x, dz, dy);
}

// With u for the gradient of dX, and v for that of dY: of X it is v dZ, of Y u dZ, and of dZ u Y + v X, added by row.
std::vector<Gradient> second_derivatives(Formula& f) {
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
      .cpu(forward<float>, forward<double>);
}

REGISTER(dot_product_gradient) {
  return pair_gradient_op("DotProduct", true)
      .flops([](const auto&, const ShapeCall& c) { return output_size(c, 0) + output_size(c, 1); })
      .cpu(gradient<float>, gradient<double>)
      .derivatives({"X", "Y", "dZ"}, second_derivatives);
}

}  // namespace
}  // namespace stepnet
