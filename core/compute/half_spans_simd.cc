// The functions of half_spans.h, built for several instruction sets (core/compute/simd.h), and the choice of the best.
#include "core/compute/half_spans.h"

#include "core/compute/half_lanes.h"
#include "core/compute/simd.h"

namespace stepnet {

static void of_float16(const float16* from, int64_t count, float* to) { convert_lanes(from, count, to); }
static void of_bfloat16(const bfloat16* from, int64_t count, float* to) { convert_lanes(from, count, to); }
static void to_float16(const float* from, int64_t count, float16* to) { convert_lanes(from, count, to); }
static void to_bfloat16(const float* from, int64_t count, bfloat16* to) { convert_lanes(from, count, to); }

static const HalfSpans kHalfSpansHere = {of_float16, of_bfloat16, to_float16, to_bfloat16};

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
