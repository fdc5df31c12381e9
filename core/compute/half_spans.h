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
  void (*add_float16)(const float16* from, int64_t count, float* sums);
  void (*add_bfloat16)(const bfloat16* from, int64_t count, float* sums);
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

// sums += from
inline void add_to_floats(const float16* from, int64_t count, float* sums) {
  half_spans().add_float16(from, count, sums);
}
inline void add_to_floats(const bfloat16* from, int64_t count, float* sums) {
  half_spans().add_bfloat16(from, count, sums);
}

}  // namespace stepnet
