// Plans of arenas: nothing overlaps, known optima are found, and of tiny cases the best arrangement is tried out.
#include "core/net/liveness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "stepnet/error.h"

namespace stepnet::liveness_test {
namespace {

using Values = std::vector<Lifetime>;

int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool alive(const Lifetime& v, int point) { return v.bytes > 0 && v.first <= point && point <= v.last; }

int end_of(const Values& values) {
  int end = 0;
  for (const Lifetime& v : values) end = std::max(end, v.last + 1);
  return end;
}

// Point by point, which bytes are taken twice, or lie outside; "" if none do.
std::string overlaps(const Values& values, const ArenaPlan& plan) {
  for (int point = 0; point < end_of(values); ++point) {
    std::vector<int> taken(static_cast<size_t>(plan.bytes / 64), -1);
    for (size_t v = 0; v < values.size(); ++v) {
      if (!alive(values[v], point)) continue;
      for (int64_t b = plan.offsets[v] / 64; b < (plan.offsets[v] + values[v].bytes + 63) / 64; ++b) {
        if (b < 0 || b >= static_cast<int64_t>(taken.size())) return fmt::format("value {} lies outside", v);
        if (taken[b] >= 0) return fmt::format("values {} and {} overlap at point {}", taken[b], v, point);
        taken[b] = static_cast<int>(v);
      }
    }
  }
  return "";
}

int64_t most_alive(const Values& values) {
  int64_t most = 0;
  for (int point = 0; point < end_of(values); ++point) {
    int64_t sum = 0;
    for (const Lifetime& v : values) sum += alive(v, point) ? rounded(v.bytes) : 0;
    most = std::max(most, sum);
  }
  return most;
}

Values random_values(std::mt19937& random, size_t count, int points, int64_t most_bytes) {
  Values values(count);
  for (Lifetime& v : values) {
    v.bytes = static_cast<int64_t>(random() % static_cast<uint64_t>(most_bytes + 1));
    v.first = static_cast<int>(random() % static_cast<unsigned>(points));
    v.last = std::min(points - 1, v.first + static_cast<int>(random() % static_cast<unsigned>(points)));
  }
  return values;
}

TEST(Liveness, UsesMakeLifetimes) {
  Lifetime v{100};
  EXPECT_GT(v.first, v.last);
  use_at(v, 5);
  EXPECT_EQ(std::pair(v.first, v.last), std::pair(5, 5));
  use_at(v, 2);
  use_at(v, 3);
  use_at(v, 7);
  EXPECT_EQ(std::pair(v.first, v.last), std::pair(2, 7));
}

TEST(Liveness, NoTwoValuesThatLiveTogetherOverlap) {
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    const Values values = random_values(random, random() % 40, 1 + static_cast<int>(random() % 20), 1000);
    const ArenaPlan plan = plan_arena(values);
    ASSERT_EQ(plan.offsets.size(), values.size());
    for (const int64_t offset : plan.offsets) ASSERT_EQ(offset % 64, 0) << round;
    ASSERT_EQ(plan.bytes % 64, 0) << round;
    ASSERT_EQ(overlaps(values, plan), "") << round;
    ASSERT_EQ(plan.most_alive, most_alive(values)) << round;
    ASSERT_GE(plan.bytes, plan.most_alive) << round;
    ASSERT_LE(plan.bytes, bytes_apart(values)) << round;
    ASSERT_EQ(plan_arena(values).offsets, plan.offsets) << round;
  }
}

// So many that they are placed as they come.
TEST(Liveness, ManyValues) {
  std::mt19937 random(7);
  for (const int points : {3, 100, 6000}) {
    Values values = random_values(random, 5000, points, 1000);
    values.push_back({0, 0, points});
    values.push_back({64, 5, 4});
    const ArenaPlan plan = plan_arena(values);
    EXPECT_EQ(overlaps(values, plan), "") << points;
    EXPECT_EQ(plan.most_alive, most_alive(values)) << points;
    EXPECT_LE(plan.bytes, 2 * plan.most_alive) << points;
    EXPECT_EQ(plan_arena(values).offsets, plan.offsets) << points;
    for (Lifetime& v : values) v.bytes = 130;
    EXPECT_EQ(plan_arena(values).bytes, most_alive(values)) << points;
  }
  Values chain;
  for (int i = 0; i < 100000; ++i) chain.push_back({1000, i, i + 1});
  EXPECT_EQ(plan_arena(chain).bytes, 2 * 1024);
}

TEST(Liveness, NothingNeedsNothing) {
  EXPECT_EQ(plan_arena({}).bytes, 0);
  EXPECT_EQ(plan_arena({}).most_alive, 0);
  const Values values = {{0, 0, 9}, {500, 3, 2}, {}};  // no bytes, never alive, both
  const ArenaPlan plan = plan_arena(values);
  EXPECT_EQ(plan.bytes, 0);
  EXPECT_EQ(plan.offsets, std::vector<int64_t>(3, 0));
}

TEST(Liveness, ValuesWithoutBytesAreInNobodysWay) {
  const Values values = {{64, 0, 1}, {0, 0, 1}, {64, 1, 2}, {0, 1, 1}};
  EXPECT_EQ(plan_arena(values).bytes, 128);
}

TEST(Liveness, AChainNeedsTwoBuffers) {
  Values values;
  for (int i = 0; i < 50; ++i) values.push_back({1000, i, i + 1});
  const ArenaPlan plan = plan_arena(values);
  EXPECT_EQ(plan.bytes, 2 * 1024);
  for (int i = 0; i < 48; ++i) EXPECT_EQ(plan.offsets[i], plan.offsets[i + 2]);
}

// With equal sizes the best is known: as many buffers as values are alive at once.
TEST(Liveness, EqualSizesNeedNoMoreThanWhatIsAlive) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    Values values = random_values(random, random() % 30, 12, 100);
    for (Lifetime& v : values) v.bytes = 130;
    EXPECT_EQ(plan_arena(values).bytes, most_alive(values)) << round;
  }
}

// Each lives within the one before.
TEST(Liveness, NestedLifetimesNeedNoMoreThanWhatIsAlive) {
  Values values;
  for (int i = 0; i < 10; ++i) values.push_back({64 * (i % 4 + 1), i, 30 - i});
  EXPECT_EQ(plan_arena(values).bytes, most_alive(values));
}

// A forward pass keeps what its backward pass reads in the opposite order.
TEST(Liveness, LargeValuesTakeThePlaceOfSmallOnes) {
  const Values values = {{64, 0, 1}, {64, 0, 1}, {128, 2, 3}, {64, 3, 4}, {64, 4, 5}};
  EXPECT_EQ(plan_arena(values).bytes, 192);
}

// Every order of taking values, each to the lowest place that is free at all of its points: the best of them is the
// best of all arrangements, for in any one values can be pushed down in the order of their offsets.
int64_t best_bytes(const Values& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t best = std::numeric_limits<int64_t>::max();
  do {
    std::vector<std::vector<bool>> taken(static_cast<size_t>(end_of(values)));  // by point, of 64 bytes each
    for (auto& t : taken) t.resize(64);
    int64_t bytes = 0;
    for (const size_t v : order) {
      const int64_t size = rounded(values[v].bytes) / 64;
      const auto is_free = [&](int64_t at) {
        for (int p = values[v].first; p <= values[v].last; ++p)
          for (int64_t b = at; b < at + size; ++b)
            if (taken[p][b]) return false;
        return true;
      };
      int64_t at = 0;
      while (!is_free(at)) ++at;
      for (int p = values[v].first; p <= values[v].last; ++p) std::fill_n(taken[p].begin() + at, size, true);
      if (size > 0) bytes = std::max(bytes, (at + size) * 64);
    }
    best = std::min(best, bytes);
  } while (std::ranges::next_permutation(order).found);
  return best;
}

// All but a few, and those are at most half as large again.
TEST(Liveness, TinyCasesAreAsSmallAsCanBe) {
  std::mt19937 random(7);
  int larger = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    const Values values = random_values(random, 1 + random() % 6, 6, 320);
    const int64_t best = best_bytes(values), planned = plan_arena(values).bytes;
    ASSERT_GE(planned, best) << round;
    ASSERT_LE(planned * 2, best * 3) << round;
    larger += planned > best ? 1 : 0;
  }
  EXPECT_LE(larger, kRounds / 50);
}

TEST(Liveness, SumsThatDoNotFitAreAnError) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(plan_arena(Values{{kMost, 0, 1}}), Error);
  EXPECT_THROW(plan_arena(Values{{kMost / 2, 0, 1}, {kMost / 2, 0, 1}, {64, 1, 1}}), Error);
}

}  // namespace
}  // namespace stepnet::liveness_test
