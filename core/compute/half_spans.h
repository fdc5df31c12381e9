// Many halves to float32 and back, as stepnet/half.h does with one, built for several instruction sets. Input and
// output must not overlap. Threads: pure functions.
#pragma once

#include <cstdint>

#include "stepnet/half.h"

namespace stepnet {

struct HalfSpans {
  void (*of_float16)(const float16* from, int64_t count, float* to);
  void (*of_bfloat16)(const bfloat16* from, int64_t count, float* to);
  void (*to_float16)(const float* from, int64_t count, float16* to);
  void (*to_bfloat16)(const float* from, int64_t count, bfloat16* to);
};

const HalfSpans& half_spans_plain();  // for every CPU that the library runs on
const HalfSpans* half_spans_wide();   // for x86-64-v4; null if this CPU is none
const HalfSpans& half_spans();        // the best of them

inline void convert_elements(const float16* from, int64_t count, float* to) {
  half_spans().of_float16(from, count, to);
}
inline void convert_elements(const bfloat16* from, int64_t count, float* to) {
  half_spans().of_bfloat16(from, count, to);
}
inline void convert_elements(const float* from, int64_t count, float16* to) {
  half_spans().to_float16(from, count, to);
}
inline void convert_elements(const float* from, int64_t count, bfloat16* to) {
  half_spans().to_bfloat16(from, count, to);
}

// sums += from, a piece at a time.
template <class Half>
void add_to_floats(const Half* from, int64_t count, float* sums) {
  constexpr int64_t kPiece = 256;
  float piece[kPiece];
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t size = count - at < kPiece ? count - at : kPiece;
    convert_elements(from + at, size, piece);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) sums[at + i] += piece[i];
  }
}

}  // namespace stepnet
