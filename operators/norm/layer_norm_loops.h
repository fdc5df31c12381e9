// The kernels of layer_norm_rows.h, for files that build them for one instruction set each, with multiplications and
// additions contracted.
#pragma once

#include "core/compute/simd.h"
#include "operators/norm/layer_norm_rows.h"

namespace stepnet {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#else
constexpr int kVectorBytes = 32;
#endif

template <class T>
struct NormVector {
  static constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};

// How a loop's body reads and writes what begins at an element: a vector, or the element alone.
template <class T>
struct InVectors {
  using Value = typename NormVector<T>::Type;
  static constexpr int kSize = NormVector<T>::kLanes;
  [[gnu::always_inline]] static inline Value get(const T* p) {
    Value v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  [[gnu::always_inline]] static inline void put(T* p, Value v) { __builtin_memcpy(p, &v, sizeof(v)); }
};
template <class T>
struct InElements {
  using Value = T;
  static constexpr int kSize = 1;
  [[gnu::always_inline]] static inline Value get(const T* p) { return *p; }
  [[gnu::always_inline]] static inline void put(T* p, Value v) { *p = v; }
};

constexpr int kNormSums = 4;  // side by side, so that none waits for another

// fn(access, j) gives what begins at element j; returns the sum of it over all elements.
template <class T, class Fn>
[[gnu::always_inline]] static inline T row_sum(int64_t n, Fn fn) {
  constexpr int kLanes = NormVector<T>::kLanes;
  typename NormVector<T>::Type sums[kNormSums] = {};
  int64_t j = 0;
  for (; j + kNormSums * kLanes <= n; j += kNormSums * kLanes)
#pragma GCC unroll 4
    for (int s = 0; s < kNormSums; ++s) sums[s] += fn(InVectors<T>(), j + s * kLanes);
  for (; j + kLanes <= n; j += kLanes) sums[0] += fn(InVectors<T>(), j);
  T total = sum_of<kLanes>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; j < n; ++j) total += fn(InElements<T>(), j);
  return total;
}

template <class T, class Fn>
[[gnu::always_inline]] static inline void row_loop(int64_t begin, int64_t end, Fn fn) {
  constexpr int kLanes = NormVector<T>::kLanes;
  int64_t j = begin;
  for (; j + kLanes <= end; j += kLanes) fn(InVectors<T>(), j);
  for (; j < end; ++j) fn(InElements<T>(), j);
}

// The mean is taken off before squares are summed, so that none of it is lost.
template <class T>
static void norm_row(NormRow<T>& row) {
  const T *x = row.x, *gamma = row.gamma, *beta = row.beta;
  T* y = row.y;
  const T mean = row_sum<T>(row.n, [=](auto a, int64_t j) { return a.get(x + j); }) / static_cast<T>(row.n);
  const T squares = row_sum<T>(row.n, [=](auto a, int64_t j) {
    const auto off = a.get(x + j) - mean;
    return off * off;
  });
  const T deviation =
      static_cast<T>(__builtin_sqrt(static_cast<double>(squares) / static_cast<double>(row.n) + row.epsilon));
  const T scale = T(1) / deviation;
  if (gamma) {
    row_loop<T>(0, row.n, [=](auto a, int64_t j) {
      a.put(y + j, (a.get(x + j) - mean) * scale * a.get(gamma + j) + a.get(beta + j));
    });
  } else {
    row_loop<T>(0, row.n, [=](auto a, int64_t j) { a.put(y + j, (a.get(x + j) - mean) * scale); });
  }
  row.mean = mean;
  row.deviation = deviation;
}

template <class T, class Gradient>
[[gnu::always_inline]] static inline void norm_gradient(const NormGradientRow<T>& row, Gradient e_of) {
  const T *x = row.x, mean = row.mean, scale = T(1) / row.deviation, n = static_cast<T>(row.n);
  const T sum = row_sum<T>(row.n, e_of);
  const T dot = row_sum<T>(row.n, [=](auto a, int64_t j) { return e_of(a, j) * (a.get(x + j) - mean); }) * scale;
  const T constant = (row.dmean - sum * scale) / n, slope = (row.dstd - dot * scale) / n * scale;
  T* dx = row.dx;
  row_loop<T>(0, row.n, [=](auto a, int64_t j) {
    a.put(dx + j, e_of(a, j) * scale + (constant + slope * (a.get(x + j) - mean)));
  });
}

template <class T>
static void norm_gradient_row(const NormGradientRow<T>& row) {
  const T *dy = row.dy, *gamma = row.gamma;
  if (!dy) {
    norm_gradient(row, [](auto a, int64_t) { return typename decltype(a)::Value{}; });
  } else if (gamma) {
    norm_gradient(row, [=](auto a, int64_t j) { return a.get(dy + j) * a.get(gamma + j); });
  } else {
    norm_gradient(row, [=](auto a, int64_t j) { return a.get(dy + j); });
  }
}

// Columns stay in registers over all rows.
template <class T>
static void norm_sums(const NormSums<T>& s, int64_t begin, int64_t end) {
  row_loop<T>(begin, end, [&](auto a, int64_t j) {
    typename decltype(a)::Value dgamma{}, dbeta{};
    for (int64_t r = 0; r < s.rows; ++r) {
      const auto dy = a.get(s.dy + r * s.n + j);
      dbeta += dy;
      if (s.dgamma) dgamma += dy * ((a.get(s.x + r * s.n + j) - s.mean[r]) * (T(1) / s.deviation[r]));
    }
    if (s.dgamma) a.put(s.dgamma + j, a.get(s.dgamma + j) + dgamma);
    if (s.dbeta) a.put(s.dbeta + j, a.get(s.dbeta + j) + dbeta);
  });
}

static const NormKernels kNormKernelsHere = {norm_row<float>,           norm_row<double>, norm_gradient_row<float>,
                                             norm_gradient_row<double>, norm_sums<float>, norm_sums<double>};

}  // namespace stepnet
