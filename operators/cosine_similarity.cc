// CosineSimilarity: Z[n] = sum(X[n] Y[n]) / (|X[n]| |Y[n]|), row by row, where a norm below 1e-6 counts as 1e-6, so
// that a row of zeros gives 0.
//
// dX = (Y / (|X| |Y|) - X Z / |X|^2) dZ, without the second term where |X| is below 1e-6; likewise dY. Both read X and
// Y. The derivatives of that are a kernel of their own.

#include <algorithm>
#include <array>
#include <cmath>

#include "operators/flops.h"
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

template <class T>
struct Term {
  double factor;
  const T* row;  // null: zeros
};

template <class T>
void add_terms(int64_t size, const std::array<Term<T>, 4>& terms, T* sum) {
  for (int64_t i = 0; i < size; ++i) {
    double value = 0;
    for (const Term<T>& t : terms)
      if (t.row) value += t.factor * static_cast<double>(t.row[i]);
    sum[i] = static_cast<T>(value);
  }
}

template <class T>
double dot_or_zero(const T* x, const T* y, int64_t size) {
  return x ? row_dot(x, y, size) : 0;
}

// With u and v for the gradients of dX and dY, s for 1 / (|X| |Y|) and w = u X / |X|^2 + v Y / |Y|^2, all products
// being sums over a row: of dZ it is g = s (u Y + v X) - Z w, and of X dZ times
//   s v - Z u / |X|^2 - s w Y + (2 Z u X / |X|^2 - g) X / |X|^2.
template <class T>
void second_gradient(In<T> xs, In<T> ys, In<T> dzs, In<T> us, In<T> vs, Out<T> gx, Out<T> gy, Out<T> gz, Call& call) {
  const Rows rows = pair_rows(call.in(0).shape());
  each_row(rows, [&](int64_t n, int64_t first) {
    const T *x = xs.data() + first, *y = ys.data() + first;
    const T *u = us.empty() ? nullptr : us.data() + first, *v = vs.empty() ? nullptr : vs.data() + first;
    const PairOfRows<T> p(x, y, rows.size);
    const double s = p.scale, cosine = p.xy * s, dz = static_cast<double>(dzs[n]);
    const double by_xx = p.xx > kLeast ? 1 / p.xx : 0, by_yy = p.yy > kLeast ? 1 / p.yy : 0;
    const double ux = dot_or_zero(u, x, rows.size) * by_xx, vy = dot_or_zero(v, y, rows.size) * by_yy;
    const double w = ux + vy;
    const double g = s * (dot_or_zero(u, y, rows.size) + dot_or_zero(v, x, rows.size)) - cosine * w;
    const double along_x = by_xx * (2 * cosine * ux - g), along_y = by_yy * (2 * cosine * vy - g);
    if (!gz.empty()) gz[n] = static_cast<T>(g);
    if (!gx.empty())
      add_terms<T>(rows.size, {{{dz * s, v}, {-dz * cosine * by_xx, u}, {-dz * s * w, y}, {dz * along_x, x}}},
                   gx.data() + first);
    if (!gy.empty())
      add_terms<T>(rows.size, {{{dz * s, u}, {-dz * cosine * by_yy, v}, {-dz * s * w, x}, {dz * along_y, y}}},
                   gy.data() + first);
  });
}

void infer_second(const NoArgs& a, ShapeCall& c) {
  infer_pair_gradients(a, c);
  for (const int i : {3, 4})
    if (c.known(0) && c.known(i))
      require(c.shape(i) == c.shape(0), "{} is {}, but X {}", i == 3 ? "ddX" : "ddY", c.shape(i), c.shape(0));
  c.set_like(2, 2);
}

std::vector<Gradient> second_derivatives(Formula& f) {
  const std::vector<Value> d =
      f.ops("CosineSimilaritySecondGradient", {f.x("X"), f.x("Y"), f.x("dZ"), f.dy("dX"), f.dy("dY")}, {},
            {f.wants("X"), f.wants("Y"), f.wants("dZ")});
  return {d[0], d[1], d[2]};
}

REGISTER(cosine_similarity) {
  return pair_op("CosineSimilarity", "the cosines")
      .doc("Cosines of the angles between rows. A norm below 1e-6 counts as 1e-6, so a row of zeros gives 0.")
      .flops([](const auto&, const ShapeCall& c) { return 6 * input_size(c, 0) + 5 * output_size(c, 0); })
      .cpu(forward<float>, forward<double>);
}

REGISTER(cosine_similarity_gradient) {
  return pair_gradient_op("CosineSimilarity")
      .flops([](const auto&, const ShapeCall& c) {
        return 6 * input_size(c, 0) + 5 * input_size(c, 2) +
               (int{c.wants(0)} + int{c.wants(1)}) * (4 * input_size(c, 0) + input_size(c, 2));
      })
      .cpu(gradient<float>, gradient<double>)
      .derivatives({"X", "Y", "dZ"}, second_derivatives);
}

REGISTER(cosine_similarity_second_gradient) {
  return op("CosineSimilaritySecondGradient")
      .doc("Gradients of CosineSimilarityGradient. An output that is not wanted is left out or \"\".")
      .input("X", "CosineSimilarity's X")
      .input("Y", "CosineSimilarity's Y")
      .input("dZ", "gradient of its Z, [N]")
      .input("ddX", "gradient of dX; zeros if left out")
      .optional()
      .input("ddY", "gradient of dY; zeros if left out")
      .optional()
      .output("X_grad", "like X")
      .optional()
      .output("Y_grad", "like X")
      .optional()
      .output("dZ_grad", "like dZ")
      .optional()
      .shape(infer_second)
      .rowwise(pairs_by_row)
      .flops([](const auto&, const ShapeCall& c) {
        return 14 * input_size(c, 0) + 12 * input_size(c, 2) +
               (int{c.wants(0)} + int{c.wants(1)}) * (7 * input_size(c, 0) + 9 * input_size(c, 2));
      })
      .cpu(second_gradient<float>, second_gradient<double>)
      .no_gradient("third derivatives of CosineSimilarity are not written");
}

}  // namespace
}  // namespace stepnet
