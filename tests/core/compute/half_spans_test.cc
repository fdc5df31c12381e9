#include "core/compute/half_spans.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace stepnet::testing::half_spans_test {
namespace {

bool are_alike(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// Numbers of all sizes, close to where rounding changes, and what is no number.
std::vector<float> floats() {
  std::vector<float> all;
  for (uint32_t exponent = 0; exponent < 512; ++exponent)
    for (const uint32_t fraction : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0x18000u,
                                    0x7fefffu, 0x7ff000u, 0x7fffffu})
      all.push_back(std::bit_cast<float>(exponent << 23 | fraction));
  return all;
}

template <class Half>
void expect_all(void (*widen)(const Half*, int64_t, float*), void (*round)(const float*, int64_t, Half*)) {
  std::vector<Half> halves(65536);
  for (uint32_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<uint16_t>(i);
  const std::vector<float> given = floats();
  // Of lengths that are no multiples of vectors, too.
  for (const size_t drop : {0, 1, 7, 13}) {
    std::vector<float> wide(halves.size() - drop);
    widen(halves.data() + drop, static_cast<int64_t>(wide.size()), wide.data());
    for (size_t i = 0; i < wide.size(); ++i) {
      const float wanted = halves[i + drop];
      ASSERT_TRUE(are_alike(wide[i], wanted) || (std::isnan(wide[i]) && std::isnan(wanted))) << i;
    }
    std::vector<Half> narrow(given.size() - drop);
    round(given.data() + drop, static_cast<int64_t>(narrow.size()), narrow.data());
    for (size_t i = 0; i < narrow.size(); ++i) {
      const Half wanted(given[i + drop]);
      ASSERT_TRUE(narrow[i].bits == wanted.bits || (std::isnan(float(narrow[i])) && std::isnan(float(wanted))))
          << given[i + drop];
    }
  }
}

template <class Half>
void expect_sums(void (*add)(const Half*, int64_t, float*)) {
  std::vector<Half> halves;
  for (int i = 0; i < 1000; ++i) halves.emplace_back(0.37f * static_cast<float>(i - 500));
  for (const size_t count : {0, 1, 15, 256, 257, 1000}) {
    std::vector<float> sums(halves.size(), 0.1f);
    add(halves.data(), static_cast<int64_t>(count), sums.data());
    for (size_t i = 0; i < sums.size(); ++i)
      ASSERT_EQ(sums[i], i < count ? 0.1f + static_cast<float>(halves[i]) : 0.1f) << i << " of " << count;
  }
}

TEST(HalfSpans, GiveWhatOneHalfGives) {
  for (const HalfSpans* spans : {&half_spans_plain(), half_spans_wide()}) {
    if (!spans) continue;
    expect_all<float16>(spans->of_float16, spans->to_float16);
    expect_all<bfloat16>(spans->of_bfloat16, spans->to_bfloat16);
    expect_sums<float16>(spans->add_float16);
    expect_sums<bfloat16>(spans->add_bfloat16);
  }
}

}  // namespace
}  // namespace stepnet::testing::half_spans_test
