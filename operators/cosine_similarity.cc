// CosineSimilarity: Z[n] = sum(X[n] Y[n]) / (|X[n]| |Y[n]|), row by row, where a norm below 1e-6 counts as 1e-6, so
// that a row of zeros gives 0.
//
// dX = (Y / (|X| |Y|) - X Z / |X|^2) dZ, without the second term where |X| is below 1e-6; likewise dY. Both read X and
// Y.

#include <algorithm>
#include <cmath>

#include "operators/row_pairs.h"

namespace stepnet {
namespace {

constexpr double kLeast = 1e-12;  // of a squared norm

template <class T>
struct PairOfRows {
  double xx, yy, xy, scale;
  PairOfRows(const T* x, const T* y, int64_t size)
      : xx(row_dot(x, x, size)),
        yy(row_dot(y, y, size)),
        xy(row_dot(x, y, size)),
        scale(1 / (std::sqrt(std::max(xx, kLeast)) * std::sqrt(std::max(yy, kLeast)))) {}
};

template <class T>
void forward(In<T> x, In<T> y, Out<T> z, Call& call) {
  const Rows rows = pair_rows(call.in(0).shape());
  each_row(rows, [&](int64_t n, int64_t first) {
    const PairOfRows<T> p(x.data() + first, y.data() + first, rows.size);
    z[n] = static_cast<T>(p.xy * p.scale);
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
  const Rows rows = pair_rows(call.in(0).shape());
  const bool wants_dx = call.wants(0), wants_dy = call.wants(1);
  each_row(rows, [&](int64_t n, int64_t first) {
    const T *x = xs.data() + first, *y = ys.data() + first;
    const PairOfRows<T> p(x, y, rows.size);
    const double cosine = p.xy * p.scale, dz = static_cast<double>(dzs[n]);
    if (wants_dx) slope(rows.size, x, y, p.scale, p.xx > kLeast ? cosine / p.xx : 0, dz, dx.data() + first);
    if (wants_dy) slope(rows.size, y, x, p.scale, p.yy > kLeast ? cosine / p.yy : 0, dz, dy.data() + first);
  });
}

REGISTER(cosine_similarity) {
  return pair_op("CosineSimilarity", "the cosines")
      .doc("Cosines of the angles between rows.")
      .cpu(forward<float>, forward<double>);
}

REGISTER(cosine_similarity_gradient) {
  return pair_gradient_op("CosineSimilarity")
      .cpu(gradient<float>, gradient<double>)
      .no_gradient("second derivatives of CosineSimilarity are not written");
}

}  // namespace
}  // namespace stepnet
