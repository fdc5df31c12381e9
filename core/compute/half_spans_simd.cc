// The functions of half_spans.h, built for several instruction sets (core/compute/simd.h), and the choice of the best.
#include "core/compute/half_spans.h"

#include "core/compute/half_lanes.h"
#include "core/compute/simd.h"

namespace stepnet {

static void of_float16(const float16* from, int64_t count, float* to) { convert_lanes(from, count, to); }
static void of_bfloat16(const bfloat16* from, int64_t count, float* to) { convert_lanes(from, count, to); }
static void to_float16(const float* from, int64_t count, float16* to) { convert_lanes(from, count, to); }
static void to_bfloat16(const float* from, int64_t count, bfloat16* to) { convert_lanes(from, count, to); }

// A piece at a time, which stays in the nearest cache.
template <class Half>
static void add_pieces(const Half* from, int64_t count, float* sums) {
  constexpr int64_t kPiece = 256;
  float piece[kPiece];
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t size = count - at < kPiece ? count - at : kPiece;
    convert_lanes(from + at, size, piece);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) sums[at + i] += piece[i];
  }
}
static void add_float16(const float16* from, int64_t count, float* sums) { add_pieces(from, count, sums); }
static void add_bfloat16(const bfloat16* from, int64_t count, float* sums) { add_pieces(from, count, sums); }

static const HalfSpans kHalfSpansHere = {of_float16, of_bfloat16, to_float16, to_bfloat16, add_float16, add_bfloat16};

#if defined(STEPNET_SIMD_V4)
const HalfSpans* half_spans_wide() { return cpu_is_x86_64_v4() ? &kHalfSpansHere : nullptr; }
#else
const HalfSpans& half_spans_plain() { return kHalfSpansHere; }

const HalfSpans& half_spans() {
  static const HalfSpans& best = half_spans_wide() ? *half_spans_wide() : half_spans_plain();
  return best;
}
#endif

}  // namespace stepnet
