// What kernels are made of that are built for several instruction sets: files named *_simd.cc, each of which the build
// compiles twice, for x86-64-v3, or any CPU of other kinds, and for x86-64-v4.
//
// Hence all functions are static and inlined, and nothing of the standard library is used that is more than types: what
// the linker merged could have the wrong instructions. A kernel's table of functions is chosen when it is first asked
// for.
//
// tanh and the logistic function of one number are straight code, for loops under `#pragma omp simd`. Both are made of
// exp(t) - 1 for t <= 0: t = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for exp(r) - 1, and 2^n put together from
// bits. Nothing can overflow, so every finite or infinite input has a finite result; NaN stays NaN. Error against the
// exact value: below 3 ulp; a logistic function below 1e-37 (double: 1e-307) may be flushed to 0.
//
// Same bits everywhere: every operation is one that IEEE 754 rounds correctly (fma is written out), so the result does
// not depend on vector width, place or instruction set, given that the compiler contracts nothing of its own: files
// with these functions are built with -ffp-contract=off. Threads: pure functions.
#pragma once

#include <cstdint>
#include <utility>

namespace stepnet {

// True if this CPU has the instructions of x86-64-v4; one by one, because not every compiler knows the level.
static inline bool cpu_is_x86_64_v4() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

// Adds a vector's halves, which takes the fewest instructions.
template <class Vector, int... L>
[[gnu::always_inline]] static inline auto halves_sum(const Vector& v, std::integer_sequence<int, L...>) {
  constexpr int half = sizeof...(L);
  return __builtin_shufflevector(v, v, L...) + __builtin_shufflevector(v, v, (L + half)...);
}

// The sum of a vector of `Size` lanes, a power of 2.
template <int Size, class Vector>
[[gnu::always_inline]] static inline auto sum_of(const Vector& v) {
  if constexpr (Size == 2) {
    return v[0] + v[1];
  } else {
    return sum_of<Size / 2>(halves_sum(v, std::make_integer_sequence<int, Size / 2>()));
  }
}

template <class T>
struct ExpConstants;

// q with exp(r) = 1 + r + r^2 q(r), highest power first; its error is 0.02 (double: 0.004) ulp of exp(r) - 1.
template <>
struct ExpConstants<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr float kLog2e = 1.44269504F, kLn2High = 0.693147182F, kLn2Low = -1.90465430e-9F;
  static constexpr float kRound = 0x1.8p23F + 127;  // adding it rounds, and leaves the biased exponent in the low bits
  static constexpr float kLowest = -88;             // exp of it has the exponent field 0, and counts as 0
  static constexpr float kQ[] = {0x1.a1256cp-13F, 0x1.6d43b0p-10F, 0x1.1110e0p-7F,
                                 0x1.5554e8p-5F,  0x1.555556p-3F,  0.5F};
};
template <>
struct ExpConstants<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr double kLog2e = 1.4426950408889634, kLn2High = 0.6931471805599453, kLn2Low = 2.3190468138462996e-17;
  static constexpr double kRound = 0x1.8p52 + 1023;
  static constexpr double kLowest = -709;
  static constexpr double kQ[] = {0x1.1f7340dbc337ep-29,
                                  0x1.af4e554377204p-26,
                                  0x1.27e4db46cddd1p-22,
                                  0x1.71de01fdbf9cap-19,
                                  0x1.a01a01a6e1e2ap-16,
                                  0x1.a01a01abf85abp-13,
                                  0x1.6c16c16c162c3p-10,
                                  0x1.11111111100bep-7,
                                  0x1.5555555555556p-5,
                                  0x1.5555555555557p-3,
                                  0.5};
};

[[gnu::always_inline]] static inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
[[gnu::always_inline]] static inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
[[gnu::always_inline]] static inline float with_sign(float x, float s) { return __builtin_copysignf(x, s); }
[[gnu::always_inline]] static inline double with_sign(double x, double s) { return __builtin_copysign(x, s); }

// Estrin's scheme, which waits less for one operation's result than Horner's.
[[gnu::always_inline]] static inline float polynomial(float r, float r2, const float (&q)[6]) {
  return fused(fused(q[0], r, q[1]), r2 * r2, fused(fused(q[2], r, q[3]), r2, fused(q[4], r, q[5])));
}
[[gnu::always_inline]] static inline double polynomial(double r, double r2, const double (&q)[11]) {
  const double r4 = r2 * r2;
  const double high = fused(q[0], r2, fused(q[1], r, q[2]));
  const double middle = fused(fused(q[3], r, q[4]), r2, fused(q[5], r, q[6]));
  const double low = fused(fused(q[7], r, q[8]), r2, fused(q[9], r, q[10]));
  return fused(fused(high, r4, middle), r4, low);
}

// exp(t) = scale (1 + rest), for t <= 0.
template <class T>
struct SplitExp {
  T scale, rest;
};

template <class T>
[[gnu::always_inline]] static inline SplitExp<T> split_exp(T t) {
  using K = ExpConstants<T>;
  using Bits = typename K::Bits;
  t = t < K::kLowest ? K::kLowest : t;  // not the other way round: NaN stays
  const T shifted = fused(t, K::kLog2e, K::kRound);
  const T n = shifted - K::kRound;
  const T r = fused(n, -K::kLn2Low, fused(n, -K::kLn2High, t));
  const T r2 = r * r;
  return {__builtin_bit_cast(T, __builtin_bit_cast(Bits, shifted) << K::kMantissa),
          fused(r2, polynomial(r, r2, K::kQ), r)};
}

// -|x|
template <class T>
[[gnu::always_inline]] static inline T made_negative(T x) {
  using Bits = typename ExpConstants<T>::Bits;
  return __builtin_bit_cast(T, __builtin_bit_cast(Bits, x) | (Bits{1} << (8 * sizeof(T) - 1)));
}

template <class T>
[[gnu::always_inline]] static inline T tanh_of(T x) {
  const SplitExp<T> e = split_exp(T(2) * made_negative(x));
  const T exp_minus_1 = fused(e.rest, e.scale, e.scale - T(1));
  return with_sign(exp_minus_1 / (exp_minus_1 + T(2)), x);
}

template <class T>
[[gnu::always_inline]] static inline T sigmoid_of(T x) {
  const SplitExp<T> split = split_exp(made_negative(x));
  const T e = fused(split.rest, split.scale, split.scale);
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

}  // namespace stepnet
