// Estimates and budgets of random nets in float32, bfloat16 and float16. STEPNET_HALF_NETS="N FIRST" in the environment
// has N seeds, from FIRST on, in place of a few (tests/random_half_nets).
#include "tests/recurrent/random_half_nets.h"
#include "tests/core/heap_counter.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace stepnet::testing::random_half_nets_test {
namespace {

TEST(RandomHalfNets, TakeNoMoreThanWasSaidBefore) {
  uint64_t count = counts_heap() ? 24 : 8, first = 1;  // a sanitizer takes some ten times as long
  const char* asked = std::getenv("STEPNET_HALF_NETS");
  if (asked) std::istringstream(asked) >> count >> first;
  int failed = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string wrong = check_half_net(random_half_net(seed));
    EXPECT_EQ(wrong, "") << "seed " << seed;
    if (!wrong.empty() && ++failed == 20) break;
  }
  if (asked) std::printf("%lu nets from seed %lu on, %d wrong\n", count, first, failed);
}

}  // namespace
}  // namespace stepnet::testing::random_half_nets_test
