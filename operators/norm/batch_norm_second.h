// The arithmetic of BatchNormSecondGradient, and where its inputs and outputs stand; see batch_norm_second.cc.
// Threads: pure functions.
#pragma once

#include "operators/norm/batch_norm.h"

namespace stepnet::batch_norm_second {

constexpr int kX = 0, kScale = 1, kDy = 2, kMean = 3, kInv = 4, kDinv = 5, kDdx = 6, kDdscale = 7, kDdbias = 8;
constexpr int kXGrad = 0, kScaleGrad = 1, kDyGrad = 2, kMeanGrad = 3, kInvGrad = 4, kDmeanGrad = 5, kDinvGrad = 6;

}  // namespace stepnet::batch_norm_second

namespace stepnet {

// The sums of a channel.
struct BatchNormSecondSums {
  double h = 0, dy = 0, hu = 0, dyu = 0, hdy = 0;  // of products
  double v = 0, vu = 0;
};

// Elements of channels of `size` elements. Inputs that were left out are null and count as zeros, as outputs that are
// not wanted are null.
template <class T>
struct BatchNormSecond {
  double size;
  const T* values[batch_norm_second::kDdbias + 1];
  T* results[batch_norm_second::kDinvGrad + 1];

  // in(i) and out(o) give the elements.
  template <class In, class Out>
  BatchNormSecond(double of_channel, const In& in, const Out& out) : size(of_channel) {
    for (int i = 0; i <= batch_norm_second::kDdbias; ++i) values[i] = in(i);
    for (int o = 0; o <= batch_norm_second::kDinvGrad; ++o) results[o] = out(o);
  }

  constexpr double in(int input, int64_t i) const { return values[input] ? static_cast<double>(values[input][i]) : 0; }
  constexpr void put(int output, int64_t i, double value) const {
    if (results[output]) results[output][i] = static_cast<T>(value);
  }
  constexpr double u(int64_t c, int64_t i) const {
    namespace at = batch_norm_second;
    return (in(at::kX, i) - in(at::kMean, c)) * in(at::kInv, c);
  }

  constexpr void add_element(BatchNormSecondSums& s, int64_t c, int64_t i) const {
    namespace at = batch_norm_second;
    const double h = in(at::kDdx, i), dy = in(at::kDy, i), here = u(c, i);
    s.h += h;
    s.dy += dy;
    s.hu += h * here;
    s.dyu += dy * here;
    s.hdy += h * dy;
  }

  // Gives the element's v.
  constexpr double put_element(const BatchNormSecondSums& s, int64_t c, int64_t i) const {
    namespace at = batch_norm_second;
    const double h = in(at::kDdx, i), dy = in(at::kDy, i), here = u(c, i), k = in(at::kDdscale, c),
                 inv = in(at::kInv, c);
    const double factor = in(at::kScale, c) * inv;
    const double v = k * dy - (factor * (h * s.dyu + dy * s.hu) + in(at::kDinv, c) * inv * inv * h) / size;
    put(at::kDyGrad, i, factor * (h - (s.h + here * s.hu) / size) + k * here + in(at::kDdbias, c));
    put(at::kXGrad, i, v * inv);
    return v;
  }

  constexpr void put_channel(const BatchNormSecondSums& s, int64_t c) const {
    namespace at = batch_norm_second;
    const double inv = in(at::kInv, c), r = s.hdy - (s.h * s.dy + s.hu * s.dyu) / size;
    put(at::kScaleGrad, c, inv * r);
    put(at::kMeanGrad, c, -inv * s.v);
    put(at::kInvGrad, c, s.vu / inv + in(at::kScale, c) * r - 2 * in(at::kDinv, c) * inv * s.hu / size);
    put(at::kDmeanGrad, c, s.h / size);
    put(at::kDinvGrad, c, -inv * inv * s.hu / size);
  }
};

}  // namespace stepnet
