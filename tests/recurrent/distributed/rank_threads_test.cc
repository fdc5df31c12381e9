// The threads of ranks that share a machine's cores, and the warning about too many.
#include "recurrent/distributed/rank_threads.h"

#include <gtest/gtest.h>

#include "recurrent/distributed/world_ranks.h"
#include "tests/operators/collective/ranks.h"

namespace stepnet::testing::rank_threads_test {
namespace {

TEST(RankThreads, OfAMachineWithEnoughCoresNothingIsSaid) {
  EXPECT_EQ(crowding({}), "");
  EXPECT_EQ(crowding({{.ranks = 1, .cores = 1, .threads = 1}}), "");
  EXPECT_EQ(crowding({{.ranks = 2, .cores = 8, .threads = 4}, {.ranks = 3, .cores = 8, .threads = 2}}), "");
}

TEST(RankThreads, TheMostCrowdedMachineIsNamed) {
  EXPECT_EQ(crowding({{.ranks = 2, .cores = 8, .threads = 4}, {.ranks = 3, .cores = 8, .threads = 3}}),
            "3 ranks of one machine with 3 threads each share 8 cores, and will wait for each other; set --threads 2, "
            "or leave it out");
  EXPECT_EQ(crowding({{.ranks = 4, .cores = 2, .threads = 1}, {.ranks = 3, .cores = 2, .threads = 1}}),
            "4 ranks of one machine with 1 thread each share 2 cores, and will wait for each other; start at most 2 "
            "there");
}

TEST(RankThreads, AllRanksHaveTheCoresOfTheirMachineTogether) {
  const RanksPtr all = ranks_of(create_world(default_world_timeout()));
  if (!all) GTEST_SKIP() << "there is one rank";
  EXPECT_EQ(all->ranks_here(), ranks());  // the tests run on one machine
  EXPECT_EQ(all->place_here(), rank());
  EXPECT_GE(all->cores_here(), count_cores(own_cores()));
  EXPECT_EQ(sum_over_ranks(all->cores_here()), static_cast<double>(all->cores_here()) * ranks());
  EXPECT_EQ(threads_of(*all), std::max(1, all->cores_here() / ranks()));
  const int many = all->cores_here() + 1;
  EXPECT_NE(crowding(*all, rank() == ranks() - 1 ? many : 1).find(fmt::format("with {} threads each", many)),
            std::string::npos);
  if (all->cores_here() >= ranks()) {
    EXPECT_EQ(crowding(*all, threads_of(*all)), "");
  }
}

}  // namespace
}  // namespace stepnet::testing::rank_threads_test
