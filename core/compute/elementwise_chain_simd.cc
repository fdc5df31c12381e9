// The kernels of elementwise_chain.h, built for several instruction sets (core/compute/simd.h), and the choice of the
// best.
#include "stepnet/elementwise_chain.h"

#include "core/compute/half_lanes.h"
#include "core/compute/simd.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace stepnet {

#if defined(__AVX512F__)
[[gnu::always_inline]] static inline void fused_get(const float* p, int64_t n, float* to) {
  _mm512_store_ps(to, _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n) - 1), p));
}
[[gnu::always_inline]] static inline void fused_get(const double* p, int64_t n, double* to) {
  _mm512_store_pd(to, _mm512_maskz_loadu_pd(static_cast<__mmask8>((1U << n) - 1), p));
}
[[gnu::always_inline]] static inline void fused_put(float* p, int64_t n, const float* from) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1), _mm512_load_ps(from));
}
[[gnu::always_inline]] static inline void fused_put(double* p, int64_t n, const double* from) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1U << n) - 1), _mm512_load_pd(from));
}

// Fewer elements than a vector has, as one.
template <class T, class Fn>
[[gnu::always_inline]] static inline void fused_rest(int64_t n, const T* a, const T* b, T* to, Fn fn) {
  constexpr int kLanes = 64 / static_cast<int>(sizeof(T));
  alignas(64) T x[kLanes], y[kLanes], z[kLanes];
  fused_get(a, n, x);
  fused_get(b, n, y);
#pragma omp simd
  for (int j = 0; j < kLanes; ++j) z[j] = fn(x[j], y[j]);
  fused_put(to, n, z);
}
#else
template <class T, class Fn>
[[gnu::always_inline]] static inline void fused_rest(int64_t n, const T* a, const T* b, T* to, Fn fn) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) to[j] = fn(a[j], b[j]);
}
#endif

template <class T, class Fn>
[[gnu::always_inline]] static inline void fused_each(int64_t n, const T* a, const T* b, T* to, Fn fn) {
  if (n == kFusedPiece) {
#pragma omp simd
    for (int64_t j = 0; j < kFusedPiece; ++j) to[j] = fn(a[j], b[j]);
    return;
  }
  constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(T));
  int64_t at = 0;
  for (; at + kLanes <= n; at += kLanes) {
#pragma omp simd
    for (int64_t j = at; j < at + kLanes; ++j) to[j] = fn(a[j], b[j]);
  }
  if (at < n) fused_rest(n - at, a + at, b + at, to + at, fn);
}

template <class T>
[[gnu::always_inline]] static inline T bits_of_both(T x, T y) {
  using Bits = typename ExpConstants<T>::Bits;
  return __builtin_bit_cast(T, __builtin_bit_cast(Bits, x) | __builtin_bit_cast(Bits, y));
}

// One instruction, as these files are built without errno.
[[gnu::always_inline]] static inline float root_of(float x) { return __builtin_sqrtf(x); }
[[gnu::always_inline]] static inline double root_of(double x) { return __builtin_sqrt(x); }

// Functions of the C library, an element at a time.
[[gnu::always_inline]] static inline float erf_of(float x) { return __builtin_erff(x); }
[[gnu::always_inline]] static inline double erf_of(double x) { return __builtin_erf(x); }
[[gnu::always_inline]] static inline float erfc_of(float x) { return __builtin_erfcf(x); }
[[gnu::always_inline]] static inline double erfc_of(double x) { return __builtin_erfc(x); }
[[gnu::always_inline]] static inline float sin_of(float x) { return __builtin_sinf(x); }
[[gnu::always_inline]] static inline double sin_of(double x) { return __builtin_sin(x); }
[[gnu::always_inline]] static inline float cos_of(float x) { return __builtin_cosf(x); }
[[gnu::always_inline]] static inline double cos_of(double x) { return __builtin_cos(x); }

template <class T, class Fn>
[[gnu::always_inline]] static inline void fused_by_library(int64_t n, const T* a, T* to, Fn fn) {
  for (int64_t j = 0; j < n; ++j) to[j] = fn(a[j]);
}

template <class T>
static inline void fused_instruction(const FusedInstruction& i, T* const* operands, int64_t n) {
  const T *a = operands[i.a], *b = operands[i.b];
  T* to = operands[i.to];
  const T value = static_cast<T>(i.value);
  switch (i.code) {
    case FusedCode::copy:
      return fused_each(n, a, b, to, [=](T x, T) { return x; });
    case FusedCode::add:
      return fused_each(n, a, b, to, [=](T x, T y) { return x + y; });
    case FusedCode::sub:
      return fused_each(n, a, b, to, [=](T x, T y) { return x - y; });
    case FusedCode::mul:
      return fused_each(n, a, b, to, [=](T x, T y) { return x * y; });
    case FusedCode::div:
      return fused_each(n, a, b, to, [=](T x, T y) { return x / y; });
    case FusedCode::maximum:
      return fused_each(n, a, b, to, [=](T x, T y) { return y > x || y != y ? y : x; });
    case FusedCode::minimum:
      return fused_each(n, a, b, to, [=](T x, T y) { return y < x || y != y ? y : x; });
    case FusedCode::negative:
      return fused_each(n, a, b, to, [=](T x, T) { return -x; });
    case FusedCode::abs:
      return fused_each(n, a, b, to, [=](T x, T) { return -made_negative(x); });
    case FusedCode::one_minus:
      return fused_each(n, a, b, to, [=](T x, T) { return T(1) - x; });
    case FusedCode::reciprocal:
      return fused_each(n, a, b, to, [=](T x, T) { return T(1) / x; });
    case FusedCode::sqrt:
      return fused_each(n, a, b, to, [=](T x, T) { return root_of(x); });
    case FusedCode::scale:
      return fused_each(n, a, b, to, [=](T x, T) { return x * value; });
    case FusedCode::add_value:
      return fused_each(n, a, b, to, [=](T x, T) { return x + value; });
    case FusedCode::at_least:
      return fused_each(n, a, b, to, [=](T x, T) { return x < value ? value : x; });
    case FusedCode::at_most:
      return fused_each(n, a, b, to, [=](T x, T) { return x > value ? value : x; });
    case FusedCode::relu:
      return fused_each(n, a, b, to, [=](T x, T) { return x < T(0) ? T(0) : x; });
    case FusedCode::if_positive:
      return fused_each(n, a, b, to, [=](T x, T y) { return x > T(0) ? y : T(0); });
    case FusedCode::unless_positive:
      return fused_each(n, a, b, to, [=](T x, T y) { return x > T(0) ? T(0) : y; });
    case FusedCode::either:
      return fused_each(n, a, b, to, [=](T x, T y) { return bits_of_both(x, y); });
    case FusedCode::exp:
      return fused_each(n, a, b, to, [=](T x, T) { return exp_of(x); });
    case FusedCode::expm1:
      return fused_each(n, a, b, to, [=](T x, T) { return expm1_of(x); });
    case FusedCode::log:
      return fused_each(n, a, b, to, [=](T x, T) { return log_of(x); });
    case FusedCode::log1p:
      return fused_each(n, a, b, to, [=](T x, T) { return log1p_of(x); });
    case FusedCode::sigmoid:
      return fused_each(n, a, b, to, [=](T x, T) { return sigmoid_of(x); });
    case FusedCode::tanh:
      return fused_each(n, a, b, to, [=](T x, T) { return tanh_of(x); });
    case FusedCode::erf:
      return fused_by_library(n, a, to, [](T x) { return erf_of(x); });
    case FusedCode::erfc:
      return fused_by_library(n, a, to, [](T x) { return erfc_of(x); });
    case FusedCode::sin:
      return fused_by_library(n, a, to, [](T x) { return sin_of(x); });
    case FusedCode::cos:
      return fused_by_library(n, a, to, [](T x) { return cos_of(x); });
  }
}

// The operands that have one element for a row, as rows of a piece.
template <class T>
struct FusedRepeats {
  alignas(64) T rows[kMostFusedRepeats][kFusedPiece];
  int tensors[kMostFusedRepeats];
  int count = 0;
  int64_t row = -1;

  // Gives each its place among the operands.
  template <class Operand>
  [[gnu::always_inline]] inline void place(const Operand* from, int tensor_count, T** operands) {
    for (int t = 0; t < tensor_count; ++t)
      if (from[t].step == 0) {
        tensors[count] = t;
        operands[t] = rows[count++];
      }
  }
  // get(t): the element of tensor t.
  template <class Get>
  [[gnu::always_inline]] inline void show(int64_t next, const Get& get) {
    if (count == 0 || next == row) return;
    row = next;
    for (int r = 0; r < count; ++r) {
      const T value = get(tensors[r]);
      for (int64_t j = 0; j < kFusedPiece; ++j) rows[r][j] = value;
    }
  }
};

template <class T>
static void fused_run(const FusedLoop<T>& loop, int64_t begin, int64_t end) {
  alignas(64) T values[kMostFusedValues][kFusedPiece];
  T* operands[kMostFusedTensors + kMostFusedValues];
  for (int v = 0; v < kMostFusedValues; ++v) operands[loop.count + v] = values[v];
  FusedRepeats<T> repeats;
  repeats.place(loop.tensors, loop.count, operands);
  const int64_t pieces = fused_pieces(loop.width);
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t row = piece / pieces, at = piece % pieces * kFusedPiece;
    const int64_t n = loop.width - at < kFusedPiece ? loop.width - at : kFusedPiece;
    for (int t = 0; t < loop.count; ++t)
      if (loop.tensors[t].step != 0) operands[t] = loop.tensors[t].first + row * loop.tensors[t].stride + at;
    repeats.show(row, [&](int t) { return loop.tensors[t].first[row * loop.tensors[t].stride]; });
    for (int i = 0; i < loop.instructions; ++i) fused_instruction(loop.code[i], operands, n);
  }
}

template <class Half>
static inline void fused_round_here(float* x, int64_t n) {
  Half rounded[kFusedPiece];
  convert_lanes(x, n, rounded);
  convert_lanes(rounded, n, x);
}

template <class Half>
static void fused_run_halves(const FusedLoop<Half>& loop, int64_t begin, int64_t end) {
  alignas(64) float values[kMostFusedTensors + kMostFusedValues][kFusedPiece];
  float* operands[kMostFusedTensors + kMostFusedValues];
  for (int v = 0; v < kMostFusedTensors + kMostFusedValues; ++v) operands[v] = values[v];
  FusedRepeats<float> repeats;
  repeats.place(loop.tensors, loop.sources, operands);
  const int64_t pieces = fused_pieces(loop.width);
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t row = piece / pieces, at = piece % pieces * kFusedPiece;
    const int64_t n = loop.width - at < kFusedPiece ? loop.width - at : kFusedPiece;
    const auto here = [&](int t) { return loop.tensors[t].first + row * loop.tensors[t].stride + at; };
    for (int t = 0; t < loop.sources; ++t)
      if (loop.tensors[t].step != 0) convert_lanes(here(t), n, operands[t]);
    repeats.show(row, [&](int t) {
      float value;
      convert_lanes(loop.tensors[t].first + row * loop.tensors[t].stride, 1, &value);
      return value;
    });
    for (int i = 0; i < loop.instructions; ++i) {
      fused_instruction(loop.code[i], operands, n);
      if (loop.code[i].is_output) fused_round_here<Half>(operands[loop.code[i].to], n);
    }
    for (int t = loop.sources; t < loop.count; ++t) convert_lanes(operands[t], n, here(t));
  }
}

static const FusedKernels kFusedKernelsHere = {fused_run<float>, fused_run<double>, fused_run_halves<float16>,
                                               fused_run_halves<bfloat16>};

#if defined(STEPNET_SIMD_V4)
const FusedKernels* fused_kernels_wide() { return cpu_is_x86_64_v4() ? &kFusedKernelsHere : nullptr; }
#else
const FusedKernels& fused_kernels_plain() { return kFusedKernelsHere; }

const FusedKernels& fused_kernels() {
  static const FusedKernels& best = fused_kernels_wide() ? *fused_kernels_wide() : fused_kernels_plain();
  return best;
}
#endif

}  // namespace stepnet
