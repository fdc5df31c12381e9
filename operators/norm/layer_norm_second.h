// The arguments and arithmetic of LayerNormSecondGradient, and where its inputs and outputs stand; see
// layer_norm_second.cc. Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

struct LayerNormSecondArgs {
  int32_t axis = 1;
};

// The inputs of one row of n elements, in double. Those that were left out are null and count as zeros, gamma as ones.
template <class T>
struct NormSecondRow {
  int64_t n = 0;
  double mean = 0, deviation = 1, dstd = 0;
  const T *x = nullptr, *dy = nullptr, *gamma = nullptr, *h = nullptr, *k = nullptr, *b = nullptr;

  static constexpr double at(const T* values, int64_t j) { return values ? static_cast<double>(values[j]) : 0; }
  constexpr double scale(int64_t j) const { return gamma ? static_cast<double>(gamma[j]) : 1; }
  constexpr double u(int64_t j) const { return (static_cast<double>(x[j]) - mean) / deviation; }
  constexpr double e(int64_t j) const { return at(dy, j) * scale(j); }
};

// The sums of a row, each divided by n, and what follows from them.
struct NormSecondMeans {
  double h = 0, hu = 0, eu = 0;

  template <class T>
  constexpr double a(const NormSecondRow<T>& row, int64_t j) const {
    return (row.at(row.h, j) - h - row.u(j) * hu) / row.deviation;
  }
  template <class T>
  constexpr double v(const NormSecondRow<T>& row, int64_t j) const {
    return row.at(row.h, j) * row.dstd / static_cast<double>(row.n) + row.at(row.dy, j) * row.at(row.k, j) -
           (hu * row.e(j) + eu * row.at(row.h, j)) / row.deviation;
  }
  template <class T>
  constexpr double dy(const NormSecondRow<T>& row, int64_t j) const {
    return row.scale(j) * a(row, j) + row.at(row.k, j) * row.u(j) + row.at(row.b, j);
  }
};

namespace layer_norm_second {
constexpr int kMean = 0, kStd = 1, kX = 2, kDy = 3, kGamma = 4, kDstd = 5, kDdx = 6, kDdgamma = 7, kDdbeta = 8;
constexpr int kDyGrad = 0, kMeanGrad = 1, kStdGrad = 2, kXGrad = 3, kGammaGrad = 4, kDmeanGrad = 5, kDstdGrad = 6;
}  // namespace layer_norm_second

}  // namespace stepnet
