// The functions of draws.h, built for several instruction sets (core/compute/simd.h), and the choice of the best.
#include "core/compute/draws.h"

#include "core/compute/simd.h"

namespace stepnet {

constexpr int kDraws = 64;

// Philox 4x32-10, as in stepnet/random.h, of draws that follow one another.
struct DrawWords {
  alignas(64) uint32_t words[4][kDraws];
};

static inline void draw_words(uint64_t key, uint64_t first, DrawWords& made) {
  uint32_t *c0 = made.words[0], *c1 = made.words[1], *c2 = made.words[2], *c3 = made.words[3];
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(index);
    c1[i] = static_cast<uint32_t>(index >> 32);
    c2[i] = 0;
    c3[i] = 0;
  }
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int i = 0; i < kDraws; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0[i], p1 = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(p1);
      c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

// The 53 upper bits of the first two words: 21 and 32 of them as integers that a double holds.
static inline void draw_uniform(uint64_t key, uint64_t first, double* to) {
  DrawWords made;
  draw_words(key, first, made);
  const uint32_t *high = made.words[0], *low = made.words[1];
#pragma omp simd
  for (int i = 0; i < kDraws; ++i) {
    const auto upper = static_cast<int32_t>(high[i] >> 11);
    // As a signed number, which is what there are instructions for: 2^31 less.
    const auto lower = static_cast<int32_t>((high[i] << 21 | low[i] >> 11) ^ 0x80000000U);
    to[i] = (static_cast<double>(upper) * 0x1p32 + (static_cast<double>(lower) + 0x1p31)) * 0x1p-53;
  }
}

static void uniform_draws(uint64_t key, uint64_t first, int64_t count, double* to) {
  int64_t at = 0;
  for (; at + kDraws <= count; at += kDraws) draw_uniform(key, first + static_cast<uint64_t>(at), to + at);
  if (at == count) return;
  double rest[kDraws];
  draw_uniform(key, first + static_cast<uint64_t>(at), rest);
  for (int64_t i = at; i < count; ++i) to[i] = rest[i - at];
}

static const DrawKernels kDrawKernelsHere = {uniform_draws};

#if defined(STEPNET_SIMD_V4)
const DrawKernels* draw_kernels_wide() { return cpu_is_x86_64_v4() ? &kDrawKernelsHere : nullptr; }
#else
const DrawKernels& draw_kernels_plain() { return kDrawKernelsHere; }

const DrawKernels& draw_kernels() {
  static const DrawKernels& best = draw_kernels_wide() ? *draw_kernels_wide() : draw_kernels_plain();
  return best;
}
#endif

}  // namespace stepnet
