// Division by multiplication (gpu/runtime/divider.h) against the processor's. Needs no GPU.
#include "gpu/runtime/divider.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace stepnet::testing::divider_test {
namespace {

// The first difference from the processor's results, or "".
std::string difference(size_t n, size_t d) {
  const gpu::Divider divider(d);
  const gpu::SplitIndex split = divider.split(n);
  const gpu::SignedSplit also = divider.signed_split(n);
  const bool same =
      static_cast<size_t>(also.quotient) == split.quotient && static_cast<size_t>(also.remainder) == split.remainder;
  if (same && divider.divide(n) == n / d && split.quotient == n / d && split.remainder == n % d) return "";
  return std::to_string(n) + " / " + std::to_string(d) + " is " + std::to_string(divider.divide(n)) + ", split as " +
         std::to_string(split.quotient) + " and " + std::to_string(split.remainder);
}

constexpr size_t kEnd32 = size_t{1} << 32;

TEST(GpuDivider, DividesAllSmallNumbers) {
  for (size_t d = 1; d < 600; ++d)
    for (size_t n = 0; n < 3000; ++n) ASSERT_EQ(difference(n, d), "");
}

// Where a multiplier that is off by one shows: around multiples of the divisor, up to the largest numbers of 32 bits
// and beyond, by divisors around powers of two.
TEST(GpuDivider, DividesAtTheCorners) {
  std::vector<size_t> divisors = {1, 3, 5, 7, 10, 641, 6700417, 0x55555555, kEnd32 - 2, kEnd32 + 2};
  for (int bits = 1; bits < 40; ++bits)
    for (const size_t off : {size_t{0}, size_t{1}, size_t{2}}) divisors.push_back((size_t{1} << bits) - 1 + off);
  for (const size_t d : divisors) {
    for (const size_t times : {size_t{0}, size_t{1}, size_t{2}, kEnd32 / 2 / d, (kEnd32 - 1) / d, kEnd32 / d + 1})
      for (const int off : {-2, -1, 0, 1, 2}) {
        const size_t n = times * d + static_cast<size_t>(off);
        if (n >> 40 != 0) continue;  // less than nothing
        ASSERT_EQ(difference(n, d), "");
      }
    for (const size_t n : {kEnd32 / 2 - 1, kEnd32 / 2, kEnd32 - 2, kEnd32 - 1, kEnd32, kEnd32 + 1, SIZE_MAX})
      ASSERT_EQ(difference(n, d), "");
  }
}

TEST(GpuDivider, DividesRandomNumbers) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const size_t d = (random() >> (32 + random() % 32)) + 1, n = random() >> (i % 8 == 0 ? random() % 32 : 32);
    ASSERT_EQ(difference(n, d), "");
  }
}

TEST(GpuDivider, OfNothingStandsForOne) {
  EXPECT_EQ(gpu::Divider(0).divide(5), 5U);
  EXPECT_EQ(gpu::Divider().split(7).quotient, 7U);
}

}  // namespace
}  // namespace stepnet::testing::divider_test
