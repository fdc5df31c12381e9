// What kernels are made of that are built for several instruction sets: files named *_simd.cc, each of which the build
// compiles twice, for x86-64-v3, or any CPU of other kinds, and for x86-64-v4.
//
// Hence all functions are static and inlined, and nothing of the standard library is used that is more than types: what
// the linker merged could have the wrong instructions. A kernel's table of functions is chosen when it is first asked
// for.
//
// tanh, the logistic function, exp, exp(x) - 1, log and log(1 + x) of one number are straight code, for loops under
// `#pragma omp simd`. NaN stays NaN. Error against the exact value: below 3 ulp; a logistic function below 1e-37
// (double: 1e-307) may be flushed to 0, an exponential function that small has the bits that there are.
//
// exp: t = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for exp(r) - 1, and 2^n put together from bits. tanh and the
// logistic function are made of exp(t) - 1 for t <= 0, so that nothing can overflow.
//
// log: x = 2^n (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), and with s = f / (2 + f), log(1 + f) = 2 atanh(s) =
// f - f^2 / 2 + s (f^2 / 2 + s^2 P(s^2)): the sum of f and of what is small beside it.
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
  static constexpr float kRound = 0x1.8p23F + 127;   // adding it rounds, and leaves the biased exponent in the low bits
  static constexpr float kLowest = -88;              // exp of it has the exponent field 0, and counts as 0
  static constexpr float kLeast = -104, kMost = 89;  // exp of less is 0, of more infinite
  static constexpr Bits kPositive = 256;             // with it every n is
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
  static constexpr double kLeast = -746, kMost = 710;
  static constexpr Bits kPositive = 2048;
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

// exp(t) = 2^n (1 + rest); the biased exponent of 2^n is in the low bits of `shifted`.
template <class T>
struct ReducedExp {
  T shifted, rest;
};

template <class T>
[[gnu::always_inline]] static inline ReducedExp<T> reduce_exp(T t) {
  using K = ExpConstants<T>;
  const T shifted = fused(t, K::kLog2e, K::kRound);
  const T n = shifted - K::kRound;
  const T r = fused(n, -K::kLn2Low, fused(n, -K::kLn2High, t));
  const T r2 = r * r;
  return {shifted, fused(r2, polynomial(r, r2, K::kQ), r)};
}

template <class T>
[[gnu::always_inline]] static inline SplitExp<T> split_exp(T t) {
  using K = ExpConstants<T>;
  using Bits = typename K::Bits;
  const ReducedExp<T> e = reduce_exp(t < K::kLowest ? K::kLowest : t);  // not the other way round: NaN stays
  return {__builtin_bit_cast(T, __builtin_bit_cast(Bits, e.shifted) << K::kMantissa), e.rest};
}

// 2^n is the product of two numbers of about half the exponent, none of which overflows or has too few bits.
template <class T>
[[gnu::always_inline]] static inline T exp_of(T x) {
  using K = ExpConstants<T>;
  using Bits = typename K::Bits;
  const T most = x > K::kMost ? K::kMost : x;
  const ReducedExp<T> e = reduce_exp(most < K::kLeast ? K::kLeast : most);
  constexpr Bits kZero = __builtin_bit_cast(Bits, K::kRound);
  const Bits n = __builtin_bit_cast(Bits, e.shifted) - kZero + K::kPositive, half = n >> 1;
  const T first = __builtin_bit_cast(T, (half - 1) << K::kMantissa),
          second = __builtin_bit_cast(T, (n - half - 1) << K::kMantissa);
  return fused(e.rest, first, first) * second;
}

// Half of it is computed, which does not overflow where the whole does not.
template <class T>
[[gnu::always_inline]] static inline T expm1_of(T x) {
  using K = ExpConstants<T>;
  using Bits = typename K::Bits;
  constexpr T kMinusOne = -40;  // its result
  const T most = x > K::kMost ? K::kMost : x;
  const ReducedExp<T> e = reduce_exp(most < kMinusOne ? kMinusOne : most);
  const T half = __builtin_bit_cast(T, (__builtin_bit_cast(Bits, e.shifted) - 1) << K::kMantissa);
  const T result = T(2) * fused(e.rest, half, half - T(0.5));
  return x == T(0) ? x : result;
}

template <class T>
struct LogConstants;

// P with log((1 + s) / (1 - s)) = 2 s + s^3 P(s^2), lowest power first; its error is 0.05 ulp of the result.
template <>
struct LogConstants<float> {
  static constexpr float kP[] = {0x1.55555b930143cp-1F, 0x1.997c06f6f3dcfp-2F, 0x1.2eeb8f9895e21p-2F};
  static constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 0x1.7f7d1cf79abcap-20F;  // the first times n is exact
  static constexpr float kWhole = 0x1.8p23F, kSmallest = 0x1p-126F, kLarger = 0x1p25F, kLargerBy = 25;
  static constexpr uint32_t kRootHalf = 0x3f3504f3, kOne = 0x3f800000;
  static constexpr float kInfinity = __builtin_inff(), kNan = __builtin_nanf("");
};
template <>
struct LogConstants<double> {
  static constexpr double kP[] = {0x1.5555555555558p-1, 0x1.999999999522ep-2, 0x1.2492492e02aa0p-2,
                                  0x1.c71c62d1d0c53p-3, 0x1.7462b9b501ffbp-3, 0x1.39fdc83dc6e2ap-3,
                                  0x1.2b5f05baaf883p-3};
  static constexpr double kLn2High = 0x1.62e42fefap-1, kLn2Low = 0x1.cf79abc9e3b39p-40;
  static constexpr double kWhole = 0x1.8p52, kSmallest = 0x1p-1022, kLarger = 0x1p54, kLargerBy = 54;
  static constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  static constexpr double kInfinity = __builtin_inf(), kNan = __builtin_nan("");
};

[[gnu::always_inline]] static inline float polynomial(float z, const float (&p)[3]) {
  return fused(fused(p[2], z, p[1]), z, p[0]);
}
[[gnu::always_inline]] static inline double polynomial(double z, const double (&p)[7]) {
  const double z2 = z * z;
  return fused(fused(fused(p[6], z, p[5]), z2, fused(p[4], z, p[3])), z2 * z, fused(fused(p[2], z, p[1]), z, p[0]));
}

// log(u) + rest, where rest is small beside log(u) or all that there is of it.
template <class T>
[[gnu::always_inline]] static inline T log_of_sum(T u, T rest) {
  using K = LogConstants<T>;
  using Bits = typename ExpConstants<T>::Bits;
  constexpr int kMantissa = ExpConstants<T>::kMantissa;
  const bool few = u < K::kSmallest;
  const Bits bits = __builtin_bit_cast(Bits, few ? u * K::kLarger : u);
  const Bits exponent = (bits - K::kRootHalf + K::kOne) >> kMantissa;  // biased
  const T biased = __builtin_bit_cast(T, exponent + __builtin_bit_cast(Bits, K::kWhole)) - K::kWhole;
  const T n = biased - T(K::kOne >> kMantissa) - (few ? K::kLargerBy : T(0));
  const T f = __builtin_bit_cast(T, bits - (exponent << kMantissa) + K::kOne) - T(1);
  const T s = f / (T(2) + f), z = s * s, half = T(0.5) * f * f;
  const T small = half - fused(s, fused(z, polynomial(z, K::kP), half), fused(n, K::kLn2Low, rest));
  const T sum = fused(n, K::kLn2High, f - small);
  const T some = u == K::kInfinity ? u : u == T(0) ? -K::kInfinity : sum;
  return u >= T(0) ? some : K::kNan;
}

template <class T>
[[gnu::always_inline]] static inline T log_of(T x) {
  return log_of_sum(x, T(0));
}

// What 1 + x loses by rounding is added, divided by 1 + x.
template <class T>
[[gnu::always_inline]] static inline T log1p_of(T x) {
  const T u = T(1) + x;
  const T lost = u == T(0) || u > LogConstants<T>::kWhole ? T(0) : (x - (u - T(1))) / u;
  const T result = log_of_sum(u, lost);
  return x == T(0) ? x : result;
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
