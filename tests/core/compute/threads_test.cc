#include "core/compute/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace stepnet::testing::threads_test {
namespace {

// The team's size for one test.
class Parallel : public ::testing::Test {
 protected:
  void SetUp() override { set_threads(3); }
  void TearDown() override { set_threads(before_); }

 private:
  int before_ = threads();
};

TEST_F(Parallel, EachPartIsDoneOnce) {
  for (int round = 0; round < 2000; ++round) {
    const int parts = 1 + round % 7;
    std::vector<std::atomic<int>> done(7);
    parallel_parts(parts, [&](int i) { ++done[i]; });
    for (int i = 0; i < 7; ++i) ASSERT_EQ(done[i], i < parts ? 1 : 0) << round;
  }
}

TEST_F(Parallel, WhatPartsWroteIsSeenAfterwards) {
  std::vector<int64_t> numbers(10'000);
  for (int64_t round = 1; round < 200; ++round) {
    parallel_for(10'000, 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) numbers[i] = i * round;
    });
    ASSERT_EQ(std::accumulate(numbers.begin(), numbers.end(), int64_t{0}), round * 9999 * 5000);
  }
}

TEST_F(Parallel, RangesAreContiguousAndEqual) {
  std::vector<int64_t> ends(4, -1);
  parallel_for(10, 1e6, [&](int64_t begin, int64_t end) { ends[begin / 3] = end; });
  EXPECT_EQ(ends, (std::vector<int64_t>{3, 6, 10, -1}));
}

TEST_F(Parallel, LittleWorkIsNotSharedOut) {
  int calls = 0;
  parallel_for(10, 1, [&](int64_t, int64_t) { ++calls; });
  parallel_for(0, 1e9, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(parts_for(1), 1);
  EXPECT_EQ(parts_for(1e9), 3);
}

TEST_F(Parallel, PartsAndSerialScopesAreSerial) {
  std::atomic<int> inside{0};
  parallel_parts(3, [&](int) {
    EXPECT_TRUE(serial_here());
    EXPECT_EQ(parts_for(1e9), 1);
    const std::thread::id me = std::this_thread::get_id();
    parallel_parts(4, [&](int) { inside += std::this_thread::get_id() == me ? 1 : 100; });
  });
  EXPECT_EQ(inside, 12);
  EXPECT_FALSE(serial_here());
  const SerialScope scope;
  EXPECT_EQ(parts_for(1e9), 1);
}

// One has the team, the others do their parts themselves.
TEST_F(Parallel, SeveralThreadsAtOnce) {
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) parallel_parts(5, [&](int i) { total += i; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 500 * 10);
}

// Workers have gone to sleep in between.
TEST_F(Parallel, WakesUp) {
  std::atomic<int> done{0};
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    parallel_parts(3, [&](int) { ++done; });
  }
  EXPECT_EQ(done, 60);
}

TEST_F(Parallel, AChildProcessHasNoWorkersAndGoesOnAlone) {
  parallel_parts(3, [](int) {});
  const pid_t child = fork();
  if (child == 0) {
    int done = 0;
    parallel_parts(3, [&](int) { ++done; });
    _exit(done);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
}  // namespace stepnet::testing::threads_test
