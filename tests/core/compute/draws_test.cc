#include "core/compute/draws.h"

#include <gtest/gtest.h>

#include <vector>

#include "stepnet/random.h"

namespace stepnet::testing::draws_test {
namespace {

// Bit for bit, for numbers of draws around those of a piece, and where the index passes 32 bits.
TEST(Draws, ManyAreAsOneByOne) {
  std::vector<const DrawKernels*> all = {&draw_kernels_plain(), &draw_kernels()};
  for (const DrawKernels* kernels : all)
    for (const uint64_t first : {uint64_t{0}, uint64_t{7}, (uint64_t{1} << 32) - 50})
      for (const int64_t count : {0, 1, 63, 64, 65, 300}) {
        const uint64_t key = 0x123456789abcdef0 + first;
        std::vector<double> made(static_cast<size_t>(count) + 1, -1);
        kernels->uniform(key, first, count, made.data());
        for (int64_t i = 0; i < count; ++i)
          EXPECT_EQ(made[static_cast<size_t>(i)], random_uniform(key, first + static_cast<uint64_t>(i)))
              << first << " " << count << " " << i;
        EXPECT_EQ(made.back(), -1);
      }
}

}  // namespace
}  // namespace stepnet::testing::draws_test
