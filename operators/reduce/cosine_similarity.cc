// CosineSimilarity: Z[n] = sum(X[n] Y[n]) / (|X[n]| |Y[n]|), row by row, where a norm below 1e-6 counts as 1e-6, so
// that a row of zeros gives 0.
//
// dX = (Y / (|X| |Y|) - X Z / |X|^2) dZ, without the second term where |X| is below 1e-6; likewise dY. Both read X and
// Y. Their derivatives follow from the formula.

#include "operators/reduce/cosine_similarity.h"

#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "operators/reduce/row_pairs.h"

namespace stepnet::cpu_cosine_similarity {
namespace {

template <class T>
CosineSums<T> sums_of(const T* x, const T* y, int64_t size) {
  return {row_dot(x, x, size), row_dot(y, y, size), row_dot(x, y, size)};
}

template <class T>
void forward(In<T> x, In<T> y, Out<T> z, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  each_row(rows, [&](int64_t n, int64_t first) {
    z[n] = static_cast<T>(sums_of(x.data() + first, y.data() + first, rows.size).cosine());
  });
}

// d = (b scale - a along) dz
template <class T>
void slope(int64_t size, const T* a, const T* b, double scale, double along, double dz, T* d) {
  for (int64_t i = 0; i < size; ++i)
    d[i] = static_cast<T>((static_cast<double>(b[i]) * scale - static_cast<double>(a[i]) * along) * dz);
}

template <class T>
void gradient(In<T> xs, In<T> ys, In<T> dzs, Out<T> dx, Out<T> dy, Call& call) {
  const AxisRows rows = pair_rows(call.in(0).shape());
  const bool wants_dx = call.wants(0), wants_dy = call.wants(1);
  each_row(rows, [&](int64_t n, int64_t first) {
    const T *x = xs.data() + first, *y = ys.data() + first;
    const CosineSums<T> p = sums_of(x, y, rows.size);
    const double dz = static_cast<double>(dzs[n]);
    if (wants_dx) slope(rows.size, x, y, p.scale, p.along_x(), dz, dx.data() + first);
    if (wants_dy) slope(rows.size, y, x, p.scale, p.along_y(), dz, dy.data() + first);
  });
}

// Numbers are one for each pair of rows.
std::vector<Value> gradient_body(Formula& f) {
  using composing::div, composing::fill, composing::map, composing::mul, composing::sub, composing::where,
      composing::zeros;
  const Value x = f.x("X"), y = f.x("Y"), dz = f.x("dZ");
  const auto dot = [&](Value a, Value b) { return f.same_shape(f.op("DotProduct", {a, b}), dz); };
  const auto scaled_rows = [&](Value a, Value factors) {
    return f.same_shape(f.ops("DotProductGradient", {a, a, factors}, {}, {true, false})[0], a);
  };
  const Value xx = dot(x, x), yy = dot(y, y), least = fill(f, dz, CosineSums<double>::kLeast);
  const Value x_counts = f.op("GT", {xx, least}), y_counts = f.op("GT", {yy, least});
  const Value bounded_xx = where(f, x_counts, xx, least), bounded_yy = where(f, y_counts, yy, least);
  const Value scale = map(f, "Rsqrt", mul(f, bounded_xx, bounded_yy)), cosine = mul(f, dot(x, y), scale);
  const auto slope = [&](Value a, Value b, Value counts, Value bounded) {
    const Value along = where(f, counts, div(f, cosine, bounded), zeros(f, dz));
    return sub(f, scaled_rows(b, mul(f, scale, dz)), scaled_rows(a, mul(f, along, dz)));
  };
  return {slope(x, y, x_counts, bounded_xx), slope(y, x, y_counts, bounded_yy)};
}

REGISTER(cosine_similarity) {
  return pair_op("CosineSimilarity", "the cosines")
      .doc("Cosines of the angles between rows. A norm below 1e-6 counts as 1e-6, so a row of zeros gives 0.")
      .flops([](const auto&, const ShapeCall& c) { return 6 * input_size(c, 0) + 5 * output_size(c, 0); })
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>);
}

REGISTER(cosine_similarity_gradient) {
  return pair_gradient_op("CosineSimilarity")
      .flops([](const auto&, const ShapeCall& c) {
        return 6 * input_size(c, 0) + 5 * input_size(c, 2) +
               (int{c.wants(0)} + int{c.wants(1)}) * (4 * input_size(c, 0) + input_size(c, 2));
      })
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_cosine_similarity
