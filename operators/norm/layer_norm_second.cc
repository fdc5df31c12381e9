// LayerNormSecondGradient: the gradients of LayerNormGradient, see layer_norm.cc.
//
// Per row, with u = (x - mean) / std, e = dy gamma, sums over the n elements of the row, and h, k and b for the
// gradients of dX, dgamma and dbeta, the loss is
//   sum(h dx) + sum(dy (k u + b)) = (sum(h e) - sum(h) sum(e) / n - sum(h u) sum(e u) / n) / std + sum(h) dmean / n
//                                   + sum(h u) dstd / n + sum(dy (k u + b)).
// So with a = (h - sum(h) / n - u sum(h u) / n) / std and c = (sum(h u) e + sum(e u) h) / (n std), its derivatives are
//   dy: gamma a + k u + b,  gamma: dy a, added over rows,  dmean: sum(h) / n,  dstd: sum(h u) / n,
//   u: h dstd / n + dy k - c =: v, and so x: v / std,  mean: -sum(v) / std,  std: -(sum(v u) + sum(a e)) / std.

#include "operators/norm/layer_norm_second.h"

#include <algorithm>
#include <vector>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"

namespace stepnet {
namespace {

using namespace layer_norm_second;

template <class T>
NormSecondRow<T> row_of(const Call& c, int64_t r, int64_t size) {
  const auto value = [&](int i) { return c.has(i) ? static_cast<double>(c.in(i).data<T>()[r]) : 0; };
  const auto row = [&](int i) { return c.has(i) ? c.in(i).data<T>() + r * size : nullptr; };
  const auto parameter = [&](int i) { return c.has(i) ? c.in(i).data<T>() : nullptr; };
  return {.n = size,
          .mean = value(kMean),
          .deviation = value(kStd),
          .dstd = value(kDstd),
          .x = row(kX),
          .dy = row(kDy),
          .gamma = parameter(kGamma),
          .h = row(kDdx),
          .k = parameter(kDdgamma),
          .b = parameter(kDdbeta)};
}

template <class T>
NormSecondMeans means_of(const NormSecondRow<T>& row) {
  NormSecondMeans m;
  for (int64_t j = 0; j < row.n; ++j) {
    const double u = row.u(j), of_h = row.at(row.h, j);
    m.h += of_h;
    m.hu += of_h * u;
    m.eu += row.e(j) * u;
  }
  const double n = static_cast<double>(std::max<int64_t>(row.n, 1));
  m.h /= n, m.hu /= n, m.eu /= n;
  return m;
}

template <class T>
void put(Call& c, int output, int64_t i, double value) {
  if (c.wants(output)) c.out(output).data<T>()[i] = static_cast<T>(value);
}

template <class T>
void second_row(Call& c, int64_t r, int64_t size) {
  const NormSecondRow<T> row = row_of<T>(c, r, size);
  const NormSecondMeans means = means_of(row);
  double sum = 0, along = 0;
  for (int64_t j = 0; j < size; ++j) {
    const double v = means.v(row, j);
    sum += v;
    along += v * row.u(j) + means.a(row, j) * row.e(j);
    put<T>(c, kDyGrad, r * size + j, means.dy(row, j));
    put<T>(c, kXGrad, r * size + j, v / row.deviation);
  }
  put<T>(c, kMeanGrad, r, -sum / row.deviation);
  put<T>(c, kStdGrad, r, -along / row.deviation);
  put<T>(c, kDmeanGrad, r, means.h);
  put<T>(c, kDstdGrad, r, means.hu);
}

// Row by row, so that each sum has one order.
template <class T>
void add_gamma(Call& c, const AxisRows& rows) {
  std::vector<double> sums(static_cast<size_t>(rows.size), 0.0);
  for (int64_t r = 0; r < rows.count; ++r) {
    const NormSecondRow<T> row = row_of<T>(c, r, rows.size);
    const NormSecondMeans means = means_of(row);
    for (int64_t j = 0; j < rows.size; ++j) sums[j] += row.at(row.dy, j) * means.a(row, j);
  }
  for (int64_t j = 0; j < rows.size; ++j) put<T>(c, kGammaGrad, j, sums[j]);
}

template <class T>
void second_gradient(const LayerNormSecondArgs& a, Call& c) {
  const AxisRows rows = rows_of(a, c.in(kX).shape());
  parallel_for(rows.count, 20.0 + 10.0 * static_cast<double>(rows.size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) second_row<T>(c, r, rows.size);
  });
  if (c.wants(kGammaGrad)) add_gamma<T>(c, rows);
}

void check_size(const ShapeCall& c, int i, const char* name, int64_t size, const char* of) {
  if (c.known(i))
    require(c.shape(i).size() == size, "{} is {}, but X {} has {} {}", name, c.shape(i), c.shape(kX), size, of);
}

void infer(const LayerNormSecondArgs& a, ShapeCall& c) {
  if (!c.known(kX)) return;
  const AxisRows rows = rows_of(a, c.shape(kX));
  for (const auto& [i, name] : {std::pair{kMean, "mean"}, {kStd, "std"}, {kDstd, "dstd"}})
    check_size(c, i, name, rows.count, "rows");
  for (const auto& [i, name] : {std::pair{kDy, "dY"}, {kDdx, "ddX"}})
    check_size(c, i, name, rows.count * rows.size, "elements");
  for (const auto& [i, name] : {std::pair{kGamma, "gamma"}, {kDdgamma, "ddgamma"}, {kDdbeta, "ddbeta"}})
    check_size(c, i, name, rows.size, "elements in a row");
  c.set_like(kDyGrad, kX);
  c.set_like(kMeanGrad, kMean);
  c.set_like(kStdGrad, kStd);
  c.set_like(kXGrad, kX);
  c.set_like(kGammaGrad, kGamma);
  c.set_like(kDmeanGrad, kMean);
  c.set_like(kDstdGrad, kStd);
}

std::vector<int64_t> gpu_workspace(const LayerNormSecondArgs& a, const Call& c) {
  constexpr int64_t kPair = 2 * sizeof(double);
  return {kPair * rows_of(a, c.in(0).shape()).count};
}

REGISTER(layer_norm_second_gradient) {
  return op<LayerNormSecondArgs>("LayerNormSecondGradient")
      .doc("Gradients of LayerNormGradient. An input left out counts as zeros, gamma as ones.")
      .arg("axis", &LayerNormSecondArgs::axis, 1, "as LayerNorm's")
      .ignored_args({"epsilon", "elementwise_affine"})
      .input("mean", "LayerNorm's")
      .input("std", "LayerNorm's")
      .input("X", "LayerNorm's")
      .input("dY", "gradient of LayerNorm's Y")
      .optional()
      .input("gamma", "LayerNorm's")
      .optional()
      .input("dstd", "gradient of LayerNorm's std")
      .optional()
      .input("ddX", "gradient of LayerNormGradient's dX")
      .optional()
      .input("ddgamma", "gradient of its dgamma")
      .optional()
      .input("ddbeta", "gradient of its dbeta")
      .optional()
      .output("dY_grad", "like X")
      .optional()
      .output("mean_grad", "like mean")
      .optional()
      .output("std_grad", "like std")
      .optional()
      .output("X_grad", "like X")
      .optional()
      .output("gamma_grad", "like gamma, which must be there")
      .optional()
      .output("dmean_grad", "like mean")
      .optional()
      .output("dstd_grad", "like std")
      .optional()
      .gpu_workspace(gpu_workspace)
      .shape(infer)
      .rowwise(leading_rows<LayerNormSecondArgs, kX>)
      .sums_rows()
      .flops([](const auto&, const ShapeCall& c) { return 33 * input_size(c, kX) + 7 * input_size(c, kMean); })
      .cpu_for<float>(second_gradient<float>)
      .cpu_for<double>(second_gradient<double>)
      .no_gradient("third derivatives of LayerNorm are not written");
}

}  // namespace
}  // namespace stepnet
