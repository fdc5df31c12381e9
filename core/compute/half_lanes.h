// The loops that turn halves into floats and back, for files that are built for several instruction sets
// (core/compute/simd.h). bfloat16 by vectors of integers, which compilers do not make of loops over single elements.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "stepnet/half.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace stepnet {

#if defined(__AVX512F__)
constexpr int64_t kHalfLanes = 16;
#else
constexpr int64_t kHalfLanes = 8;
#endif
typedef uint16_t HalfLanes __attribute__((vector_size(2 * kHalfLanes)));
typedef uint32_t WordLanes __attribute__((vector_size(4 * kHalfLanes)));

[[gnu::always_inline]] static inline void convert_lanes(const bfloat16* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kHalfLanes <= count; i += kHalfLanes) {
    HalfLanes halves;
    __builtin_memcpy(&halves, from + i, sizeof(halves));
    const WordLanes words = __builtin_convertvector(halves, WordLanes) << 16;
    __builtin_memcpy(to + i, &words, sizeof(words));
  }
  for (; i < count; ++i) to[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i].bits) << 16);
}

// The bits in the lower half of a word. Of what is not a number, one that is none either.
template <class Words>
[[gnu::always_inline]] static inline Words rounded_to_bfloat16(Words all) {
  const Words nearest = (all + 0x7fffu + ((all >> 16) & 1u)) >> 16, not_a_number = (all >> 16) | 0x40u;
  return (all & 0x7fffffffu) > 0x7f800000u ? not_a_number : nearest;
}

[[gnu::always_inline]] static inline void convert_lanes(const float* from, int64_t count, bfloat16* to) {
  int64_t i = 0;
  for (; i + kHalfLanes <= count; i += kHalfLanes) {
    WordLanes all;
    __builtin_memcpy(&all, from + i, sizeof(all));
    const HalfLanes halves = __builtin_convertvector(rounded_to_bfloat16(all), HalfLanes);
    __builtin_memcpy(to + i, &halves, sizeof(halves));
  }
  for (; i < count; ++i) to[i].bits = static_cast<uint16_t>(rounded_to_bfloat16(__builtin_bit_cast(uint32_t, from[i])));
}

#if defined(__F16C__)
[[gnu::always_inline]] static inline void convert_lanes(const float16* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = _cvtsh_ss(from[i].bits);
}
[[gnu::always_inline]] static inline void convert_lanes(const float* from, int64_t count, float16* to) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), kNearest));
  for (; i < count; ++i) to[i].bits = _cvtss_sh(from[i], kNearest);
}
#else
static inline void convert_lanes(const float16* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}
static inline void convert_lanes(const float* from, int64_t count, float16* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = float16(from[i]);
}
#endif

}  // namespace stepnet
