// float16 and bfloat16 against their definitions, spelled out in doubles.
#include "stepnet/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stepnet::half_test {
namespace {

// The value of bits with so many of exponent and fraction, by the formula of IEEE 754.
double value_of(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int most = (1 << exponent_bits) - 1, bias = most / 2;
  const int exponent = (bits >> fraction_bits) & most, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == most) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  const double scaled = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(scaled, std::max(exponent, 1) - bias - fraction_bits);
}

template <class T>
void every_value_survives(int exponent_bits, int fraction_bits) {
  for (int b = 0; b < 1 << 16; ++b) {
    T half;
    half.bits = static_cast<uint16_t>(b);
    const double expected = value_of(half.bits, exponent_bits, fraction_bits);
    const float value = half;
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << b;
      EXPECT_TRUE(std::isnan(float{T(value)})) << b;
    } else {
      ASSERT_EQ(value, expected) << b;
      ASSERT_EQ(T(value).bits, b);
    }
  }
}

// Between neighbours: what is nearer, and in the middle the one whose last bit is 0.
template <class T>
void middles_go_to_even(uint16_t infinite) {
  for (uint16_t b = 0; b < infinite - 1; ++b) {
    T low, high;
    low.bits = b;
    high.bits = static_cast<uint16_t>(b + 1);
    const auto middle = static_cast<float>((double{low} + double{high}) / 2);
    ASSERT_EQ(T(middle).bits, b % 2 == 0 ? b : b + 1) << b;
    ASSERT_EQ(T(std::nextafter(middle, 0.0f)).bits, b) << b;
    ASSERT_EQ(T(std::nextafter(middle, INFINITY)).bits, b + 1) << b;
    ASSERT_EQ(T(-middle).bits, (b % 2 == 0 ? b : b + 1) | 0x8000) << b;
  }
}

TEST(Half, EveryFloat16IsAFloatAndBack) { every_value_survives<float16>(5, 10); }
TEST(Half, EveryBfloat16IsAFloatAndBack) { every_value_survives<bfloat16>(8, 7); }
TEST(Half, Float16IsTheNearest) { middles_go_to_even<float16>(0x7c00); }

TEST(Half, Bfloat16IsTheNearest) {
  middles_go_to_even<bfloat16>(0x7f80);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Half, WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(float16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(float16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(float16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(float16(INFINITY).bits, 0x7c00);
  EXPECT_EQ(float16(0x1p-25f).bits, 0);  // half of the smallest goes to even
  EXPECT_EQ(float16(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
}

TEST(Half, AsATensor) {
  EXPECT_EQ(dtype_size(DType::bfloat16), 2u);
  EXPECT_EQ(dtype_from_name("bfloat16"), DType::bfloat16);
  EXPECT_TRUE(is_half(dtype_of<float16>()) && is_half(dtype_of<bfloat16>()) && !is_half(DType::float32));
}

}  // namespace
}  // namespace stepnet::half_test
