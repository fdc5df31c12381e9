// The kernels of row_product.h, built for several instruction sets (core/compute/simd.h), with multiplications and
// additions contracted, and the choice of the best.
#include "core/compute/row_product.h"

#include "core/compute/simd.h"

namespace stepnet {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

[[gnu::always_inline]] static inline Lanes load_lanes(const float* p) {
  Lanes v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

#if defined(__AVX512F__)
// The sums of the lanes of four, in the order of sum_of.
[[gnu::always_inline]] static inline void sums_of_four(const Lanes* x, float* to) {
  const auto halves = [](Lanes a, Lanes b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  };
  const Lanes a = halves(x[0], x[1]), b = halves(x[2], x[3]);
  Lanes sums = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  sums += __builtin_shufflevector(sums, sums, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  sums += __builtin_shufflevector(sums, sums, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  for (int r = 0; r < 4; ++r) to[r] = sums[4 * r];
}

// Of short rows most of the work is to add up a vector's lanes: of four rows at a time. Returns where it has stopped.
static int64_t short_row_product(const RowProduct& p, int64_t begin, int64_t end) {
  if (p.k % kLanes != 0 || p.k >= 4 * kLanes) return begin;
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) {
    Lanes sums[4] = {};
    for (int r = 0; r < 4; ++r)
      for (int64_t i = 0; i < p.k; i += kLanes)
        sums[r] += load_lanes(p.a + i) * load_lanes(p.b + (row + r) * p.ldb + i);
    if (!p.accumulate && !p.bias) {
      sums_of_four(sums, p.c + row);
      continue;
    }
    float totals[4];
    sums_of_four(sums, totals);
    for (int r = 0; r < 4; ++r) {
      const float total = p.accumulate ? totals[r] + p.c[row + r] : totals[r];
      p.c[row + r] = p.bias ? total + p.bias[row + r] : total;
    }
  }
  return row;
}
#else
static int64_t short_row_product(const RowProduct&, int64_t begin, int64_t) { return begin; }
#endif

// One stored row after the other, which is how memory is read fastest, in four sums, so that none waits for another.
static void transposed_row_product(const RowProduct& p, int64_t begin, int64_t end) {
  begin = short_row_product(p, begin, end);
  for (int64_t row = begin; row < end; ++row) {
    const float* b = p.b + row * p.ldb;
    Lanes sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * kLanes <= p.k; i += 4 * kLanes)
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) sums[s] += load_lanes(p.a + i + s * kLanes) * load_lanes(b + i + s * kLanes);
    for (; i + kLanes <= p.k; i += kLanes) sums[0] += load_lanes(p.a + i) * load_lanes(b + i);
    float total = sum_of<kLanes>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < p.k; ++i) total += p.a[i] * b[i];
    if (p.accumulate) total += p.c[row];
    p.c[row] = p.bias ? total + p.bias[row] : total;
  }
}

// R rows of B at a time, each added to all outputs, which stay in the first-level cache.
template <int R>
[[gnu::always_inline]] static inline void add_rows(const RowProduct& p, int64_t row, int64_t begin, int64_t end) {
  const float* b = p.b + row * p.ldb;
  Lanes x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = Lanes{} + p.a[row + r];
  int64_t j = begin;
  for (; j + kLanes <= end; j += kLanes) {
    Lanes sum = load_lanes(p.c + j);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum += x[r] * load_lanes(b + r * p.ldb + j);
    __builtin_memcpy(p.c + j, &sum, sizeof(sum));
  }
  for (; j < end; ++j)
    for (int r = 0; r < R; ++r) p.c[j] = fused(x[r][0], b[r * p.ldb + j], p.c[j]);
}

static void plain_row_product(const RowProduct& p, int64_t begin, int64_t end) {
  if (!p.accumulate)
    for (int64_t j = begin; j < end; ++j) p.c[j] = 0;
  if (p.bias)
    for (int64_t j = begin; j < end; ++j) p.c[j] += p.bias[j];
  int64_t row = 0;
  for (; row + 8 <= p.k; row += 8) add_rows<8>(p, row, begin, end);
  for (; row < p.k; ++row) add_rows<1>(p, row, begin, end);
}

constexpr int kPanelVectors = 8;
constexpr int64_t kPanelColumns = kPanelVectors * kLanes;

// A panel's outputs stay in registers.
static void panel_row_product(const RowProduct& p, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; j += kPanelColumns) {
    Lanes sums[kPanelVectors] = {};
    const float* b = p.b + j * p.k;
    for (int64_t i = 0; i < p.k; ++i, b += kPanelColumns)
#pragma GCC unroll 8
      for (int v = 0; v < kPanelVectors; ++v) sums[v] += p.a[i] * load_lanes(b + v * kLanes);
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVectors; ++v) {
      const int64_t at = j + v * kLanes;
      if (p.accumulate) sums[v] += load_lanes(p.c + at);
      if (p.bias) sums[v] += load_lanes(p.bias + at);
      __builtin_memcpy(p.c + at, &sums[v], sizeof(sums[v]));
    }
  }
}

static const RowProductKernels kRowProductsHere = {plain_row_product, transposed_row_product, panel_row_product,
                                                   kPanelColumns};

#if defined(STEPNET_SIMD_V4)
const RowProductKernels* row_products_wide() { return cpu_is_x86_64_v4() ? &kRowProductsHere : nullptr; }
#else
const RowProductKernels& row_products_plain() { return kRowProductsHere; }

const RowProductKernels& row_products() {
  static const RowProductKernels& best = row_products_wide() ? *row_products_wide() : row_products_plain();
  return best;
}
#endif

}  // namespace stepnet
