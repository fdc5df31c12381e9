// Random nets: their runs in all ways and their gradients are those of a reference that does nothing clever.
//
// `tests/random_nets N [FIRST]` runs a campaign of N seeds.
#include <gtest/gtest.h>

#include "tests/core/random_nets_check.h"

namespace stepnet::testing::random_nets_test {
namespace {

// What is wrong with the net of that seed, with the smallest net that shows it; "" if nothing is.
std::string check_seed(uint64_t seed, NetCounts& counts) {
  const RandomNet r = random_net(seed);
  const std::string wrong = check_random_net(r, seed, counts);
  if (wrong.empty()) return "";
  NetCounts none;
  const RandomNet least = shrink(r, [&](const RandomNet& less) {
    try {
      return !check_random_net(less, seed, none).empty();
    } catch (const std::exception&) {
      return false;
    }
  });
  return fmt::format("seed {}: {}\nThe smallest net with a fault:\n{}{}\n", seed, wrong, text_of(least),
                     check_random_net(least, seed, none));
}

std::string text_of(const NetCounts& c) {
  return fmt::format(
      "{} runs, {} of them planned, and {} that fail alike; {} nets differentiated and {} refused, {} gradients "
      "against "
      "differences, {} nets by recomputation",
      c.runs, c.planned_runs, c.threw, c.differentiated, c.refused, c.differences, c.recomputed);
}

TEST(RandomNets, AreThoseOfTheReference) {
  NetCounts counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) EXPECT_EQ(check_seed(seed, counts), "");
  EXPECT_GT(counts.planned_runs, 500) << text_of(counts);
  EXPECT_GT(counts.differentiated, 100) << text_of(counts);
  EXPECT_GT(counts.differences, 200) << text_of(counts);
  EXPECT_GT(counts.recomputed, 20) << text_of(counts);
}

TEST(RandomNets, Campaign) {
  const auto [count, first] = campaign_seeds();
  if (count == 0) GTEST_SKIP() << "for tests/random_nets";
  NetCounts counts;
  uint64_t wrong = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string text_of_seed = check_seed(seed, counts);
    wrong += text_of_seed.empty() ? 0 : 1;
    EXPECT_EQ(text_of_seed, "");
  }
  fmt::print("{} nets, {} wrong: {}\n", count, wrong, text_of(counts));
}

}  // namespace
}  // namespace stepnet::testing::random_nets_test
