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
[[gnu::always_inline]] static inline void fused_rest(int64_t n, const T* a, const T* b, const T* c, T* to, Fn fn) {
  constexpr int kLanes = 64 / static_cast<int>(sizeof(T));
  alignas(64) T x[kLanes], y[kLanes], z[kLanes], made[kLanes];
  fused_get(a, n, x);
  fused_get(b, n, y);
  fused_get(c, n, z);
#pragma omp simd
  for (int j = 0; j < kLanes; ++j) made[j] = fn(x[j], y[j], z[j]);
  fused_put(to, n, made);
}
#else
template <class T, class Fn>
[[gnu::always_inline]] static inline void fused_rest(int64_t n, const T* a, const T* b, const T* c, T* to, Fn fn) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) to[j] = fn(a[j], b[j], c[j]);
}
#endif

template <class T, class Fn>
[[gnu::always_inline]] static inline void fused_each(int64_t n, const T* a, const T* b, const T* c, T* to, Fn fn) {
  constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(T));
  int64_t at = 0;
  for (; at + kLanes <= n; at += kLanes) {
#pragma omp simd
    for (int64_t j = at; j < at + kLanes; ++j) to[j] = fn(a[j], b[j], c[j]);
  }
  if (at < n) fused_rest(n - at, a + at, b + at, c + at, to + at, fn);
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

// Operands of a piece; whole vectors of sixteen may be written that begin in it.
constexpr int64_t kFusedRoom = kFusedPiece + 16;

template <class T>
[[gnu::always_inline]] static inline void fused_repeat(T value, int64_t n, T* to) {
  for (int64_t at = 0; at < n; at += 16) {
#pragma omp simd
    for (int64_t j = 0; j < 16; ++j) to[at + j] = value;
  }
}

template <class T, int kLanes>
using FusedLanes [[gnu::vector_size(kLanes * sizeof(T))]] = T;

// Sixteen elements, or fewer and zeros. Vectors of 64 bytes are neither arguments nor results, as not every CPU has
// them.
template <class T, class Lanes>
[[gnu::always_inline]] static inline void fused_load(const T* x, int64_t n, Lanes& lanes) {
  if (n >= 16) {
    __builtin_memcpy(&lanes, x, sizeof(lanes));
    return;
  }
  T padded[16] = {};
  for (int64_t j = 0; j < n; ++j) padded[j] = x[j];
  __builtin_memcpy(&lanes, padded, sizeof(lanes));
}

// Four sums of a row's elements, or of their products by others: sixteen sums, and their halves together twice. The
// order does not depend on the instruction set. kVectors: how many sixteen there are; 0: it is not known before.
template <bool kMultiplies, int kVectors, class T>
[[gnu::always_inline]] static inline FusedLanes<T, 4> fused_four_sums(int64_t columns, const T* a, const T* b) {
  FusedLanes<T, 16> sums = {}, x, y;
  const auto add = [&](int64_t at, int64_t n) {
    fused_load(a + at, n, x);
    if constexpr (kMultiplies) {
      fused_load(b + at, n, y);
      x *= y;
    }
    sums += x;
  };
  if constexpr (kVectors > 0) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) add(16 * v, 16);
  } else {
    for (int64_t at = 0; at < columns; at += 16) add(at, columns - at);
  }
  const FusedLanes<T, 8> eight = __builtin_shufflevector(sums, sums, 0, 1, 2, 3, 4, 5, 6, 7) +
                                 __builtin_shufflevector(sums, sums, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
}

// The halves of four sums together, twice, as fused_row_sums does it for four rows.
template <class T>
[[gnu::always_inline]] static inline T fused_sum(const T* x, int64_t n) {
  const FusedLanes<T, 4> four = fused_four_sums<false, 0>(n, x, x);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// The halves of the four sums of four rows together, twice.
template <class T>
[[gnu::always_inline]] static inline FusedLanes<T, 4> fused_sums_of_four(const FusedLanes<T, 4>& w,
                                                                         const FusedLanes<T, 4>& x,
                                                                         const FusedLanes<T, 4>& y,
                                                                         const FusedLanes<T, 4>& z) {
  const FusedLanes<T, 4> wx = __builtin_shufflevector(w, x, 0, 1, 4, 5) + __builtin_shufflevector(w, x, 2, 3, 6, 7);
  const FusedLanes<T, 4> yz = __builtin_shufflevector(y, z, 0, 1, 4, 5) + __builtin_shufflevector(y, z, 2, 3, 6, 7);
  return __builtin_shufflevector(wx, yz, 0, 2, 4, 6) + __builtin_shufflevector(wx, yz, 1, 3, 5, 7);
}

// Sums of rows of so many columns.
template <bool kMultiplies, int kVectors, class T>
[[gnu::always_inline]] static inline void fused_row_sums(int64_t rows, int64_t columns, const T* a, const T* b, T* to) {
  const auto row = [&](int64_t r) {
    return fused_four_sums<kMultiplies, kVectors>(columns, a + r * columns, b + r * columns);
  };
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const FusedLanes<T, 4> sums = fused_sums_of_four<T>(row(r), row(r + 1), row(r + 2), row(r + 3));
    __builtin_memcpy(to + r, &sums, sizeof(sums));
  }
  if (r == rows) return;
  const int64_t last = rows - 1;  // stands for those that are not there
  const FusedLanes<T, 4> sums =
      fused_sums_of_four<T>(row(r), row(r + 1 < last ? r + 1 : last), row(r + 2 < last ? r + 2 : last), row(last));
  for (int64_t i = r; i < rows; ++i) to[i] = sums[i - r];
}

template <bool kMultiplies, class T>
[[gnu::always_inline]] static inline void fused_row_sums(int64_t rows, int64_t columns, const T* a, const T* b, T* to) {
  switch (columns) {
    case 16:
      return fused_row_sums<kMultiplies, 1>(rows, 16, a, b, to);
    case 32:
      return fused_row_sums<kMultiplies, 2>(rows, 32, a, b, to);
    case 64:
      return fused_row_sums<kMultiplies, 4>(rows, 64, a, b, to);
    case 128:
      return fused_row_sums<kMultiplies, 8>(rows, 128, a, b, to);
    default:
      return fused_row_sums<kMultiplies, 0>(rows, columns, a, b, to);
  }
}

// An element for each row, in all columns of it.
template <class T>
[[gnu::always_inline]] static inline void fused_spread(int64_t rows, int64_t columns, const T* from, T* to) {
  const int64_t in_vectors = (columns + 15) / 16 * 16, n = rows * columns;
  int64_t at = 0;
  for (; at + in_vectors <= n; at += columns) fused_repeat(*from++, columns, to + at);
  for (; at < n; at += columns, ++from)
    for (int64_t j = 0; j < columns; ++j) to[at + j] = *from;
}

// What a code makes of single elements.
template <FusedCode code, class T>
[[gnu::always_inline]] static inline T fused_value(T x, T y, T z, T value) {
  switch (code) {
    case FusedCode::copy:
      return x;
    case FusedCode::add:
      return x + y;
    case FusedCode::sub:
      return x - y;
    case FusedCode::mul:
      return x * y;
    case FusedCode::div:
      return x / y;
    case FusedCode::maximum:
      return y > x || y != y ? y : x;
    case FusedCode::minimum:
      return y < x || y != y ? y : x;
    case FusedCode::negative:
      return -x;
    case FusedCode::abs:
      return -made_negative(x);
    case FusedCode::one_minus:
      return T(1) - x;
    case FusedCode::reciprocal:
      return T(1) / x;
    case FusedCode::sqrt:
      return root_of(x);
    case FusedCode::scale:
      return x * value;
    case FusedCode::add_value:
      return x + value;
    case FusedCode::at_least:
      return x < value ? value : x;
    case FusedCode::at_most:
      return x > value ? value : x;
    case FusedCode::relu:
      return x < T(0) ? T(0) : x;
    case FusedCode::if_positive:
      return x > T(0) ? y : T(0);
    case FusedCode::unless_positive:
      return x > T(0) ? T(0) : y;
    case FusedCode::either:
      return bits_of_both(x, y);
    case FusedCode::exp:
      return exp_of(x);
    case FusedCode::expm1:
      return expm1_of(x);
    case FusedCode::log:
      return log_of(x);
    case FusedCode::log1p:
      return log1p_of(x);
    case FusedCode::sigmoid:
      return sigmoid_of(x);
    case FusedCode::tanh:
      return tanh_of(x);
    case FusedCode::erf:
      return erf_of(x);
    case FusedCode::erfc:
      return erfc_of(x);
    case FusedCode::sin:
      return sin_of(x);
    case FusedCode::cos:
      return cos_of(x);
    case FusedCode::product_sum:
      return x * y + z;
    case FusedCode::less_product:
      return z - x * y;
    case FusedCode::row_sum:
    case FusedCode::row_product:
    case FusedCode::spread:
      break;
  }
  return x;
}

// A function of the C library takes one element at a time.
static constexpr bool fused_by_library(FusedCode code) {
  return code == FusedCode::erf || code == FusedCode::erfc || code == FusedCode::sin || code == FusedCode::cos;
}

static constexpr bool fused_sums_rows(FusedCode code) {
  return code == FusedCode::row_sum || code == FusedCode::row_product;
}

// An instruction for so many rows. What does not take a whole piece is a function of its own, so that the other needs
// no room on the stack.
template <class T>
struct FusedSpan {
  int64_t rows, columns;
  const T *a, *b, *c;
  T* to;
  T value;
};

template <FusedCode code, class T>
[[gnu::noinline]] static void fused_part_of_piece(const FusedSpan<T>& s) {
  const int64_t n = s.rows * s.columns;
  if constexpr (fused_by_library(code)) {
    for (int64_t j = 0; j < n; ++j) s.to[j] = fused_value<code>(s.a[j], s.b[j], s.c[j], s.value);
  } else if constexpr (code == FusedCode::spread) {
    fused_spread(s.rows, s.columns, s.a, s.to);
  } else {
    fused_each(n, s.a, s.b, s.c, s.to, [&](T x, T y, T z) { return fused_value<code>(x, y, z, s.value); });
  }
}

// Operand a has one element for each row.
template <FusedCode code, class T>
[[gnu::noinline]] static void fused_with_column(const FusedSpan<T>& s) {
  const T *b = s.b, *c = s.c;
  T* to = s.to;
  for (int64_t r = 0; r < s.rows; ++r, b += s.columns, c += s.columns, to += s.columns) {
    const T x = s.a[r];
    int64_t at = 0;
    for (; at + 16 <= s.columns; at += 16) {
#pragma omp simd
      for (int64_t j = at; j < at + 16; ++j) to[j] = fused_value<code>(x, b[j], c[j], s.value);
    }
    for (; at < s.columns; ++at) to[at] = fused_value<code>(x, b[at], c[at], s.value);
  }
}

template <FusedCode code, class T>
static void fused_instruction(const FusedInstruction& i, T* const* operands, int64_t rows, int64_t columns) {
  const T *a = operands[i.a], *b = operands[i.b], *c = operands[i.c];
  T* to = operands[i.to];
  const T value = static_cast<T>(i.value);
  if constexpr (fused_sums_rows(code)) {
    fused_row_sums<code == FusedCode::row_product>(rows, columns, a, b, to);
  } else {
    if constexpr (takes_column(code))
      if (i.column) return fused_with_column<code>(FusedSpan<T>{rows, columns, a, b, c, to, value});
    if constexpr (code != FusedCode::spread && !fused_by_library(code)) {
      if (rows * columns == kFusedPiece) {
#pragma omp simd
        for (int64_t j = 0; j < kFusedPiece; ++j) to[j] = fused_value<code>(a[j], b[j], c[j], value);
        return;
      }
    }
    fused_part_of_piece<code>(FusedSpan<T>{rows, columns, a, b, c, to, value});
  }
}

template <class T>
using FusedFunction = void (*)(const FusedInstruction&, T* const*, int64_t, int64_t);

template <class T>
static FusedFunction<T> fused_function(FusedCode code) {
  switch (code) {
    case FusedCode::copy:
      return fused_instruction<FusedCode::copy, T>;
    case FusedCode::add:
      return fused_instruction<FusedCode::add, T>;
    case FusedCode::sub:
      return fused_instruction<FusedCode::sub, T>;
    case FusedCode::mul:
      return fused_instruction<FusedCode::mul, T>;
    case FusedCode::div:
      return fused_instruction<FusedCode::div, T>;
    case FusedCode::maximum:
      return fused_instruction<FusedCode::maximum, T>;
    case FusedCode::minimum:
      return fused_instruction<FusedCode::minimum, T>;
    case FusedCode::negative:
      return fused_instruction<FusedCode::negative, T>;
    case FusedCode::abs:
      return fused_instruction<FusedCode::abs, T>;
    case FusedCode::one_minus:
      return fused_instruction<FusedCode::one_minus, T>;
    case FusedCode::reciprocal:
      return fused_instruction<FusedCode::reciprocal, T>;
    case FusedCode::sqrt:
      return fused_instruction<FusedCode::sqrt, T>;
    case FusedCode::scale:
      return fused_instruction<FusedCode::scale, T>;
    case FusedCode::add_value:
      return fused_instruction<FusedCode::add_value, T>;
    case FusedCode::at_least:
      return fused_instruction<FusedCode::at_least, T>;
    case FusedCode::at_most:
      return fused_instruction<FusedCode::at_most, T>;
    case FusedCode::relu:
      return fused_instruction<FusedCode::relu, T>;
    case FusedCode::if_positive:
      return fused_instruction<FusedCode::if_positive, T>;
    case FusedCode::unless_positive:
      return fused_instruction<FusedCode::unless_positive, T>;
    case FusedCode::either:
      return fused_instruction<FusedCode::either, T>;
    case FusedCode::exp:
      return fused_instruction<FusedCode::exp, T>;
    case FusedCode::expm1:
      return fused_instruction<FusedCode::expm1, T>;
    case FusedCode::log:
      return fused_instruction<FusedCode::log, T>;
    case FusedCode::log1p:
      return fused_instruction<FusedCode::log1p, T>;
    case FusedCode::sigmoid:
      return fused_instruction<FusedCode::sigmoid, T>;
    case FusedCode::tanh:
      return fused_instruction<FusedCode::tanh, T>;
    case FusedCode::erf:
      return fused_instruction<FusedCode::erf, T>;
    case FusedCode::erfc:
      return fused_instruction<FusedCode::erfc, T>;
    case FusedCode::sin:
      return fused_instruction<FusedCode::sin, T>;
    case FusedCode::cos:
      return fused_instruction<FusedCode::cos, T>;
    case FusedCode::product_sum:
      return fused_instruction<FusedCode::product_sum, T>;
    case FusedCode::less_product:
      return fused_instruction<FusedCode::less_product, T>;
    case FusedCode::row_sum:
      return fused_instruction<FusedCode::row_sum, T>;
    case FusedCode::row_product:
      return fused_instruction<FusedCode::row_product, T>;
    case FusedCode::spread:
      return fused_instruction<FusedCode::spread, T>;
  }
  return nullptr;
}

// A part of the loop: whole rows, or columns of one.
struct FusedPart {
  int64_t row = 0, rows = 1, column = 0, columns = 0;
  int64_t size() const { return rows * columns; }
};

// The instructions of a loop, with the functions that run them.
template <class T>
struct FusedProgram {
  const FusedInstruction* code;
  int count;
  FusedFunction<T> functions[kMostFusedValues];

  FusedProgram(const FusedInstruction* all, int instructions) : code(all), count(instructions) {
    for (int i = 0; i < count; ++i) functions[i] = fused_function<T>(all[i].code);
  }
  [[gnu::always_inline]] inline void run(int i, T* const* operands, const FusedPart& part) const {
    functions[i](code[i], operands, part.rows, code[i].narrow ? 1 : part.columns);
  }
  // How many elements instruction i makes.
  int64_t results(int i, const FusedPart& part) const {
    return code[i].narrow || fused_sums_rows(code[i].code) ? part.rows : part.size();
  }
};

template <class T>
[[gnu::always_inline]] static inline FusedPart fused_part(const FusedLoop<T>& loop, int64_t at_once, int64_t piece) {
  if (at_once > 1) {
    const int64_t row = piece * at_once, left = loop.rows - row;
    return {row, left < at_once ? left : at_once, 0, loop.width};
  }
  const int64_t pieces = fused_pieces_of_row(loop.width);
  const int64_t column = piece % pieces * kFusedPiece, left = loop.width - column;
  return {piece / pieces, 1, column, left < kFusedPiece ? left : kFusedPiece};
}

// Which of the tensor's rows the loop's rows have, from the first one of a part on.
struct FusedRow {
  int64_t each, cycle, rest, row;
  template <class T>
  FusedRow(const FusedOperand<T>& t, int64_t first) : each(t.each), cycle(t.cycle), rest(0), row(first) {
    if (each > 1) {
      rest = row % each;
      row /= each;
    }
    if (cycle > 0) row %= cycle;
  }
  [[gnu::always_inline]] inline void next() {
    if (++rest < each) return;
    rest = 0;
    if (++row == cycle) row = 0;
  }
};

// The part's elements where they follow one another in the tensor, and null where they do not.
template <class T>
[[gnu::always_inline]] static inline T* fused_dense(const FusedOperand<T>& t, const FusedPart& part) {
  if (t.narrow) return t.stride == 1 && t.each == 1 && t.cycle == 0 ? t.first + part.row : nullptr;
  if (t.step != 1 || (part.rows > 1 && (t.stride != part.columns || t.each != 1))) return nullptr;
  const int64_t row = FusedRow(t, part.row).row;
  if (part.rows > 1 && t.cycle > 0 && row + part.rows > t.cycle) return nullptr;
  return t.first + row * t.stride + part.column;
}

template <class T>
[[gnu::always_inline]] static inline void fused_copy(const T* from, int64_t n, T* to) {
  fused_each(n, from, from, from, to, [](T x, T, T) { return x; });
}

// A part of which all rows of the loop have one row of the tensor is the same for all such parts.
struct FusedRepeated {
  int64_t row = -1, rows = 0;

  [[gnu::always_inline]] inline bool is_known(const FusedRow& at, const FusedPart& part) {
    const bool is_one = at.each > 1 && part.column == 0 && at.rest + part.rows <= at.each;
    const bool known = is_one && at.row == row && part.rows <= rows;
    row = is_one ? at.row : -1;
    rows = part.rows;
    return known;
  }
};

template <class T>
static inline void fused_gather(const FusedOperand<T>& t, const FusedPart& part, FusedRepeated& repeated, T* to) {
  FusedRow at(t, part.row);
  if (t.narrow) {
    for (int64_t r = 0; r < part.rows; ++r, at.next()) to[r] = t.first[at.row * t.stride];
    return;
  }
  if (t.step == 0 && t.each == 1 && t.cycle == 0) {
    const T* from = t.first + part.row * t.stride;
    for (int64_t r = 0; r < part.rows; ++r) fused_repeat(from[r * t.stride], part.columns, to + r * part.columns);
    return;
  }
  if (part.rows > 1 && repeated.is_known(at, part)) return;
  for (int64_t r = 0; r < part.rows; ++r, at.next(), to += part.columns) {
    const T* from = t.first + at.row * t.stride + part.column * t.step;
    t.step == 0 ? fused_repeat(*from, part.columns, to) : fused_copy(from, part.columns, to);
  }
}

// Sums of rows, of which a piece may have a part: pieces of a row follow one another.
template <class T>
struct FusedSums {
  T begun[kMostFusedTensors];

  // put(row, sum) when the row is whole.
  template <class Put>
  [[gnu::always_inline]] inline void add(int tensor, const FusedPart& part, int64_t width, const T* x, const Put& put) {
    for (int64_t r = 0; r < part.rows; ++r, x += part.columns) {
      const T sum = fused_sum(x, part.columns);
      begun[tensor] = part.column == 0 ? sum : begun[tensor] + sum;
      if (part.column + part.columns == width) put(part.row + r, begun[tensor]);
    }
  }
};

// The sum of so many rows, each multiplied by its weight if there are some, and of what is there if `more`.
template <bool kWeighted, class T>
static inline void fused_sum_of_rows(const T* from, const T* weights, int64_t rows, int64_t columns, bool more, T* to) {
  for (int64_t at = 0; at < columns; at += 16) {
    const int64_t n = columns - at;
    FusedLanes<T, 16> sum = {}, x;
    for (int64_t r = 0; r < rows; ++r) {
      fused_load(from + r * columns + at, n, x);
      if constexpr (kWeighted) x *= weights[r];
      sum += x;
    }
    if (more) {
      fused_load(to + at, n, x);
      sum += x;
    }
    if (n >= 16) {
      __builtin_memcpy(to + at, &sum, sizeof(sum));
    } else {
      for (int64_t j = 0; j < n; ++j) to[at + j] = sum[j];
    }
  }
}

// Adds the part's rows to those of the tensor that they have in common, which begin with the first of them.
template <class T>
static void fused_add_up(const FusedOperand<T>& t, const FusedPart& part, T* const* operands) {
  const T *from = operands[t.value], *weights = t.weight < 0 ? nullptr : operands[t.weight];
  int64_t row = part.row / t.each, first = part.row - row * t.each;
  for (int64_t r = 0, n; r < part.rows; r += n, ++row, first = 0) {
    n = t.each - first < part.rows - r ? t.each - first : part.rows - r;
    T* const to = t.first + row * t.stride;
    if (t.narrow) {
      const T sum = fused_sum(from + r, n);
      *to = first > 0 ? *to + sum : sum;
    } else if (weights) {
      fused_sum_of_rows<true>(from + r * part.columns, weights + r, n, part.columns, first > 0, to + part.column);
    } else {
      fused_sum_of_rows<false>(from + r * part.columns, weights, n, part.columns, first > 0, to + part.column);
    }
  }
}

template <class T>
static void fused_run(const FusedLoop<T>& loop, int64_t begin, int64_t end) {
  alignas(64) T tensors[kMostFusedTensors][kFusedRoom];  // those whose elements do not follow one another
  alignas(64) T values[kMostFusedValues][kFusedRoom];
  T* operands[kMostFusedTensors + kMostFusedValues];
  for (int v = 0; v < kMostFusedValues; ++v) operands[loop.count + v] = values[v];
  const FusedProgram<T> program(loop.code, loop.instructions);
  FusedSums<T> sums;
  FusedRepeated repeated[kMostFusedTensors];
  const int64_t at_once = fused_rows_at_once(loop.width);
  for (int64_t piece = begin; piece < end; ++piece) {
    const FusedPart part = fused_part(loop, at_once, piece);
    for (int t = 0; t < loop.count; ++t) {
      T* const dense = fused_dense(loop.tensors[t], part);
      operands[t] = dense ? dense : tensors[t];
      if (!dense && t < loop.sources) fused_gather(loop.tensors[t], part, repeated[t], tensors[t]);
    }
    for (int i = 0; i < program.count; ++i) program.run(i, operands, part);
    for (int t = loop.sources; t < loop.count; ++t) {
      const FusedOperand<T>& to = loop.tensors[t];
      if (to.value >= 0) {
        fused_add_up(to, part, operands);
        continue;
      }
      if (operands[t] != tensors[t]) continue;
      const T* from = tensors[t];
      const auto put = [&](int64_t row, T value) { to.first[row * to.stride] = value; };
      if (to.sums) {
        sums.add(t, part, loop.width, from, put);
      } else if (to.narrow) {
        for (int64_t r = 0; r < part.rows; ++r) put(part.row + r, from[r]);
      } else {
        for (int64_t r = 0; r < part.rows; ++r, from += part.columns)
          fused_copy(from, part.columns, to.first + (part.row + r) * to.stride + part.column);
      }
    }
  }
}

template <class Half>
static inline void fused_round_here(float* x, int64_t n) {
  Half rounded[kFusedPiece];
  convert_lanes(x, n, rounded);
  convert_lanes(rounded, n, x);
}

template <class Half>
static inline void fused_gather_halves(const FusedOperand<Half>& t, const FusedPart& part, float* to) {
  if (const Half* dense = fused_dense(t, part)) return convert_lanes(dense, t.narrow ? part.rows : part.size(), to);
  FusedRow at(t, part.row);
  if (t.narrow) {
    for (int64_t r = 0; r < part.rows; ++r, at.next()) convert_lanes(t.first + at.row * t.stride, 1, to + r);
    return;
  }
  for (int64_t r = 0; r < part.rows; ++r, at.next(), to += part.columns) {
    const Half* from = t.first + at.row * t.stride + part.column * t.step;
    if (t.step != 0) {
      convert_lanes(from, part.columns, to);
      continue;
    }
    float value;
    convert_lanes(from, 1, &value);
    fused_repeat(value, part.columns, to);
  }
}

template <class Half>
static void fused_run_halves(const FusedLoop<Half>& loop, int64_t begin, int64_t end) {
  alignas(64) float values[kMostFusedTensors + kMostFusedValues][kFusedRoom];
  float* operands[kMostFusedTensors + kMostFusedValues];
  for (int v = 0; v < kMostFusedTensors + kMostFusedValues; ++v) operands[v] = values[v];
  const FusedProgram<float> program(loop.code, loop.instructions);
  FusedSums<float> sums;
  const int64_t at_once = fused_rows_at_once(loop.width);
  for (int64_t piece = begin; piece < end; ++piece) {
    const FusedPart part = fused_part(loop, at_once, piece);
    for (int t = 0; t < loop.sources; ++t) fused_gather_halves(loop.tensors[t], part, operands[t]);
    for (int i = 0; i < program.count; ++i) {
      program.run(i, operands, part);
      if (loop.code[i].is_output) fused_round_here<Half>(operands[loop.code[i].to], program.results(i, part));
    }
    for (int t = loop.sources; t < loop.count; ++t) {
      const FusedOperand<Half>& to = loop.tensors[t];
      const auto put = [&](int64_t row, float value) { convert_lanes(&value, 1, to.first + row * to.stride); };
      if (to.sums) {
        sums.add(t, part, loop.width, operands[t], put);
        continue;
      }
      if (to.narrow) {
        for (int64_t r = 0; r < part.rows; ++r) put(part.row + r, operands[t][r]);
        continue;
      }
      if (Half* dense = fused_dense(to, part)) {
        convert_lanes(operands[t], part.size(), dense);
        continue;
      }
      for (int64_t r = 0; r < part.rows; ++r)
        convert_lanes(operands[t] + r * part.columns, part.columns,
                      to.first + (part.row + r) * to.stride + part.column);
    }
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
