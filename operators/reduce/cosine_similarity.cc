// CosineSimilarity: Z[n] = sum(X[n] Y[n]) / (|X[n]| |Y[n]|), row by row, where a norm below 1e-6 counts as 1e-6, so
// that a row of zeros gives 0.
//
// dX = (Y / (|X| |Y|) - X Z / |X|^2) dZ, without the second term where |X| is below 1e-6; likewise dY. Both read X and
// Y. The derivatives of that are a kernel of their own.

#include "operators/reduce/cosine_similarity.h"

#include <array>

#include "core/operator/flops.h"
#include "operators/reduce/row_pairs.h"

namespace stepnet {
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
  const AxisRows rows = pair_rows(call.in(0).shape());
  each_row(rows, [&](int64_t n, int64_t first) {
    const T *x = xs.data() + first, *y = ys.data() + first;
    const T *u = us.empty() ? nullptr : us.data() + first, *v = vs.empty() ? nullptr : vs.data() + first;
    const CosineSecond<T> p(sums_of(x, y, rows.size), dot_or_zero(u, x, rows.size), dot_or_zero(v, y, rows.size),
                            dot_or_zero(u, y, rows.size), dot_or_zero(v, x, rows.size));
    const double dz = static_cast<double>(dzs[n]), s = dz * p.s, across = -dz * p.s * p.w;
    if (!gz.empty()) gz[n] = static_cast<T>(p.g);
    if (!gx.empty())
      add_terms<T>(rows.size, {{{s, v}, {-dz * p.cosine * p.by_xx, u}, {across, y}, {dz * p.along_x, x}}},
                   gx.data() + first);
    if (!gy.empty())
      add_terms<T>(rows.size, {{{s, u}, {-dz * p.cosine * p.by_yy, v}, {across, x}, {dz * p.along_y, y}}},
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
