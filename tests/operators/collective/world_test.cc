// Worlds by themselves: what each operation makes of every type, sizes, order, threads, and what is refused.
#include "operators/collective/world.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "stepnet/half.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::world_test {
namespace {

// Element i of rank r: small whole numbers, so that sums are exact in every type.
template <class T>
std::vector<T> values_of(int r, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = static_cast<T>(static_cast<float>((i + 3 * r) % 7));
  return values;
}

template <class T>
std::vector<T> reduced(int64_t count, ReduceOp op) {
  std::vector<T> all = values_of<T>(0, count);
  for (int r = 1; r < ranks(); ++r) {
    const std::vector<T> other = values_of<T>(r, count);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto a = static_cast<double>(all[i]), b = static_cast<double>(other[i]);
      all[i] = static_cast<T>(static_cast<float>(op == ReduceOp::sum   ? a + b
                                                 : op == ReduceOp::min ? std::min(a, b)
                                                                       : std::max(a, b)));
    }
  }
  return all;
}

template <class T>
std::vector<double> numbers(const std::vector<T>& values) {
  std::vector<double> all;
  for (const T& v : values) all.push_back(static_cast<double>(v));
  return all;
}

template <class T>
class WorldOf : public ::testing::Test {};
using Numbers =
    ::testing::Types<float, double, int32_t, int64_t, int16_t, uint16_t, int8_t, uint8_t, float16, bfloat16>;
TYPED_TEST_SUITE(WorldOf, Numbers);

constexpr int64_t kCounts[] = {0, 1, 2, 5, 1000};

TYPED_TEST(WorldOf, AllreduceIsTheReductionOnEveryRank) {
  using T = TypeParam;
  World& world = shared_world();
  for (const int64_t count : kCounts)
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
      std::vector<T> mine = values_of<T>(rank(), count), made(mine.size());
      world.start_allreduce(mine.data(), made.data(), count, dtype_of<T>(), op)->wait();
      EXPECT_EQ(numbers(made), numbers(reduced<T>(count, op))) << count;
      world.start_allreduce(mine.data(), mine.data(), count, dtype_of<T>(), op)->wait();
      EXPECT_EQ(numbers(mine), numbers(made)) << "in place, " << count;
    }
}

// In several pieces, with parts of ranks that differ by an element.
TYPED_TEST(WorldOf, LargeSumsAreThoseOfEveryRank) {
  using T = TypeParam;
  for (const int64_t bytes : {int64_t{1} << 16, (int64_t{5} << 20) + 16}) {
    const int64_t count = bytes / static_cast<int64_t>(sizeof(T)) + 1;
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      std::vector<T> mine = values_of<T>(rank(), count), made(mine.size());
      shared_world().start_allreduce(mine.data(), made.data(), count, dtype_of<T>(), op)->wait();
      EXPECT_TRUE(numbers(made) == numbers(reduced<T>(count, op))) << count;
      shared_world().start_allreduce(mine.data(), mine.data(), count, dtype_of<T>(), op)->wait();
      EXPECT_TRUE(numbers(mine) == numbers(made)) << "in place, " << count;
    }
  }
}

// Of several that move at the same time, larger and smaller ones in turn, none gets another's values; rounded sums of
// values whose order counts have the same bits on all ranks.
TEST(World, LargeSumsMoveBesideEachOther) {
  std::vector<std::vector<float>> values;
  std::vector<PendingPtr> pending;
  for (int i = 0; i < 24; ++i) {
    const int64_t count = i % 3 == 0 ? 700'001 : i % 3 == 1 ? 20'000 : 3;
    std::vector<float>& mine = values.emplace_back(static_cast<size_t>(count));
    for (size_t k = 0; k < mine.size(); ++k)
      mine[k] = static_cast<float>((k * 7919 + static_cast<size_t>(31 * i + 101 * rank())) % 10'007) / 37 + 1000.0F * i;
    pending.push_back(shared_world().start_allreduce(mine.data(), mine.data(), count, DType::float32, ReduceOp::sum));
  }
  for (const PendingPtr& p : pending) p->wait();
  for (int i = 0; i < 24; ++i) {
    std::vector<float>& mine = values[static_cast<size_t>(i)];
    const std::vector<float> first = [&] {
      std::vector<float> from_root = mine;
      shared_world().start_broadcast(from_root.data(), static_cast<int64_t>(mine.size()), DType::float32, 0)->wait();
      return from_root;
    }();
    EXPECT_TRUE(mine == first) << i;
    for (const size_t k : {size_t{0}, mine.size() / 2, mine.size() - 1}) {
      double sum = 0;
      for (int r = 0; r < ranks(); ++r)
        sum += static_cast<double>((k * 7919 + static_cast<size_t>(31 * i + 101 * r)) % 10'007) / 37 + 1000.0 * i;
      EXPECT_NEAR(mine[k], sum, 1e-6 * (1 + sum)) << i << ", " << k;
    }
  }
}

TYPED_TEST(WorldOf, AllgatherOfPartsHasAsManyOfEachAsItHas) {
  using T = TypeParam;
  World& world = shared_world();
  for (const int64_t count : kCounts) {
    std::vector<int64_t> counts;
    std::vector<T> expected;
    for (int r = 0; r < ranks(); ++r) {
      counts.push_back(r == 1 ? 0 : count * (r + 1));
      const std::vector<T> theirs = values_of<T>(r, counts.back());
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    std::vector<T> mine = values_of<T>(rank(), counts[static_cast<size_t>(rank())]), made(expected.size());
    world.start_allgather_parts(mine.data(), made.data(), counts, dtype_of<T>())->wait();
    EXPECT_EQ(numbers(made), numbers(expected)) << count;
  }
}

TYPED_TEST(WorldOf, AlltoallGivesEachRankItsPart) {
  using T = TypeParam;
  World& world = shared_world();
  for (const int64_t count : kCounts) {
    // What is for rank r begins as the values of rank r would.
    std::vector<T> mine, expected, made(static_cast<size_t>(count * ranks()));
    for (int r = 0; r < ranks(); ++r) {
      const std::vector<T> values = values_of<T>(rank() + r, count), from = values_of<T>(r + rank(), count);
      mine.insert(mine.end(), values.begin(), values.end());
      expected.insert(expected.end(), from.begin(), from.end());
    }
    for (int64_t i = 0; i < count; ++i) mine[static_cast<size_t>(i + count * rank())] = T(5);
    for (int64_t i = 0; i < count; ++i) expected[static_cast<size_t>(i + count * rank())] = T(5);
    world.start_alltoall(mine.data(), made.data(), count, dtype_of<T>())->wait();
    EXPECT_EQ(numbers(made), numbers(expected)) << count;
  }
}

TYPED_TEST(WorldOf, ReduceIsTheReductionOnTheRoot) {
  using T = TypeParam;
  World& world = shared_world();
  for (const int64_t count : kCounts)
    for (int root = 0; root < ranks(); ++root) {
      std::vector<T> mine = values_of<T>(rank(), count), made(mine.size(), T(9));
      world.start_reduce(mine.data(), made.data(), count, dtype_of<T>(), ReduceOp::sum, root)->wait();
      const std::vector<T> untouched(mine.size(), T(9));
      EXPECT_EQ(numbers(made), numbers(rank() == root ? reduced<T>(count, ReduceOp::sum) : untouched)) << count;
      world.start_reduce(mine.data(), mine.data(), count, dtype_of<T>(), ReduceOp::sum, root)->wait();
      EXPECT_EQ(numbers(mine), numbers(rank() == root ? made : values_of<T>(rank(), count))) << "in place, " << count;
    }
}

TYPED_TEST(WorldOf, BroadcastGivesWhatTheRootHas) {
  using T = TypeParam;
  for (const int64_t count : kCounts)
    for (int root = 0; root < ranks(); ++root) {
      std::vector<T> mine = values_of<T>(rank(), count);
      shared_world().start_broadcast(mine.data(), count, dtype_of<T>(), root)->wait();
      EXPECT_EQ(numbers(mine), numbers(values_of<T>(root, count))) << count;
    }
}

TYPED_TEST(WorldOf, AllgatherPutsRanksBehindEachOther) {
  using T = TypeParam;
  for (const int64_t count : kCounts) {
    const std::vector<T> mine = values_of<T>(rank(), count);
    std::vector<T> made(mine.size() * static_cast<size_t>(ranks())), expected;
    shared_world().start_allgather(mine.data(), made.data(), count, dtype_of<T>())->wait();
    for (int r = 0; r < ranks(); ++r)
      for (const T& v : values_of<T>(r, count)) expected.push_back(v);
    EXPECT_EQ(numbers(made), numbers(expected)) << count;
  }
}

TYPED_TEST(WorldOf, ReduceScatterSharesTheReductionOut) {
  using T = TypeParam;
  for (const int64_t count : kCounts) {
    const std::vector<T> mine = values_of<T>(rank(), count * ranks());
    std::vector<T> made(static_cast<size_t>(count));
    shared_world().start_reduce_scatter(mine.data(), made.data(), count, dtype_of<T>(), ReduceOp::sum)->wait();
    const std::vector<T> all = reduced<T>(count * ranks(), ReduceOp::sum);
    EXPECT_EQ(numbers(made), numbers(std::vector<T>(all.begin() + rank() * count, all.begin() + (rank() + 1) * count)));
  }
}

TYPED_TEST(WorldOf, TensorsGoRound) {
  using T = TypeParam;
  if (ranks() == 1) GTEST_SKIP() << "one rank has nobody to send to";
  const int next = (rank() + 1) % ranks(), before = (rank() + ranks() - 1) % ranks();
  for (const int64_t count : kCounts) {
    const std::vector<T> mine = values_of<T>(rank(), count);
    std::vector<T> got(mine.size());
    const PendingPtr sent = shared_world().start_send(mine.data(), count, dtype_of<T>(), next, 7);
    const PendingPtr received = shared_world().start_receive(got.data(), count, dtype_of<T>(), World::kAny, 7);
    received->wait();
    sent->wait();
    EXPECT_EQ(numbers(got), numbers(values_of<T>(before, count)));
    EXPECT_EQ(received->source(), before);
    EXPECT_EQ(received->tag(), 7);
  }
}

TEST(World, HalvesAreAddedAsFloats) {
  float16 mine = 2048.0F, sum{};  // 2048 + 1 is no float16
  if (rank() == 0) mine = 1.5F;
  shared_world().start_allreduce(&mine, &sum, 1, DType::float16, ReduceOp::sum)->wait();
  if (ranks() == 2) {
    EXPECT_EQ(static_cast<float>(sum), static_cast<float>(float16(2049.5F)));
  }
}

TEST(World, BoolsAreMovedButNotAdded) {
  bool mine = rank() == ranks() - 1, sum = false;
  shared_world().start_broadcast(&mine, 1, DType::boolean, ranks() - 1)->wait();
  EXPECT_TRUE(mine);
  if (ranks() > 1) {
    const auto add = [&] { shared_world().start_allreduce(&mine, &sum, 1, DType::boolean, ReduceOp::sum); };
    EXPECT_NE(error_of(add).find("bools cannot be added up"), std::string::npos);
  }
}

// Many at a time, waited for in another order than started.
TEST(World, OperationsOverlap) {
  constexpr int kOperations = 40;
  std::vector<std::vector<double>> values(kOperations);
  std::vector<PendingPtr> pending;
  for (int k = 0; k < kOperations; ++k) {
    values[k].assign(1 + 500 * static_cast<size_t>(k), rank() + 1.0 + k);
    pending.push_back(shared_world().start_allreduce(
        values[k].data(), values[k].data(), static_cast<int64_t>(values[k].size()), DType::float64, ReduceOp::sum));
  }
  for (int k = kOperations - 1; k >= 0; --k) {
    pending[k]->wait();
    EXPECT_TRUE(pending[k]->done());
    const double expected = ranks() * (ranks() + 1) / 2.0 + ranks() * k;
    for (const double v : values[k]) ASSERT_EQ(v, expected) << k;
  }
}

// More than MPI is given at once.
TEST(World, LargeTensorsMoveInPieces) {
  const int64_t count = (int64_t{1} << 26) + 12345;
  std::vector<int8_t> values(static_cast<size_t>(count), static_cast<int8_t>(rank() + 1));
  values.back() = static_cast<int8_t>(10 * rank());
  shared_world().start_allreduce(values.data(), values.data(), count, DType::int8, ReduceOp::sum)->wait();
  EXPECT_EQ(values.front(), ranks() * (ranks() + 1) / 2);
  EXPECT_EQ(values[values.size() - 2], ranks() * (ranks() + 1) / 2);
  EXPECT_EQ(values.back(), 10 * (ranks() * (ranks() - 1) / 2));
  values.assign(values.size(), static_cast<int8_t>(rank()));
  shared_world().start_broadcast(values.data(), count, DType::int8, ranks() - 1)->wait();
  EXPECT_EQ(std::ranges::count(values, ranks() - 1), count);
}

// Sums of numbers that round have the same bits each time and on each rank.
TEST(World, SumsAreReproducible) {
  for (const int64_t count : {7, 3000, 400000}) {
    const Tensor mine = normal<float>({count}, 100 + static_cast<uint64_t>(rank()));
    std::vector<float> first(static_cast<size_t>(count)), again(first);
    for (int round = 0; round < 5; ++round) {
      std::vector<float>& to = round == 0 ? first : again;
      shared_world().start_allreduce(mine.raw(), to.data(), count, DType::float32, ReduceOp::sum)->wait();
      if (round > 0) {
        EXPECT_EQ(std::memcmp(first.data(), again.data(), first.size() * sizeof(float)), 0) << count;
      }
    }
    std::vector<float> of_root = first;
    shared_world().start_broadcast(of_root.data(), count, DType::float32, 0)->wait();
    EXPECT_EQ(std::memcmp(first.data(), of_root.data(), first.size() * sizeof(float)), 0) << count;
  }
}

// Each thread has a world of its own, and they run at different speeds.
TEST(World, TwoWorldsServeTwoThreads) {
  const WorldPtr first = create_world(default_world_timeout()), second = first->clone(first->timeout());
  const auto work = [](World& world, int rounds, int64_t count) {
    for (int k = 0; k < rounds; ++k) {
      std::vector<int64_t> values(static_cast<size_t>(count), world.rank() + k);
      world.start_allreduce(values.data(), values.data(), count, DType::int64, ReduceOp::sum)->wait();
      const int64_t expected = world.size() * k + world.size() * (world.size() - 1) / 2;
      EXPECT_EQ(std::ranges::count(values, expected), count) << k;
    }
  };
  // On every other rank the threads start in the other order.
  World *a = first.get(), *b = second.get();
  std::thread one([&] { rank() % 2 == 0 ? work(*a, 200, 10) : work(*b, 20, 50000); });
  rank() % 2 == 0 ? work(*b, 20, 50000) : work(*a, 200, 10);
  one.join();
}

// The world is fine afterwards.
TEST(World, RanksThatDisagreeAreTold) {
  if (ranks() == 1) GTEST_SKIP() << "one rank agrees with itself";
  World& world = shared_world();
  std::vector<float> values(8, 1.0F);
  const auto text = [&](const PendingPtr& pending) { return error_of([&] { pending->wait(); }); };
  const int64_t count = rank() == 1 ? 4 : 8;
  const std::string counts =
      text(world.start_allreduce(values.data(), values.data(), count, DType::float32, ReduceOp::sum));
  EXPECT_NE(counts.find("rank 1: Allreduce of 4 float elements"), std::string::npos) << counts;
  EXPECT_NE(counts.find("Allreduce of 8 float elements"), std::string::npos) << counts;
  EXPECT_NE(counts.find(fmt::format("rank {} of {}", rank(), ranks())), std::string::npos) << counts;
  const std::string roots = text(world.start_broadcast(values.data(), 8, DType::float32, rank() == 1 ? 1 : 0));
  EXPECT_NE(roots.find("rank 1: Broadcast of 8 float elements, root 1"), std::string::npos) << roots;
  const std::string types =
      text(world.start_broadcast(values.data(), 4, rank() == 1 ? DType::int32 : DType::float32, 0));
  EXPECT_NE(types.find("rank 1: Broadcast of 4 int32 elements"), std::string::npos) << types;
  const std::string kinds =
      text(rank() == 1 ? world.start_barrier() : world.start_broadcast(values.data(), 4, DType::float32, 0));
  EXPECT_NE(kinds.find("rank 1: Barrier"), std::string::npos) << kinds;
  EXPECT_EQ(sum_over_ranks(1), ranks());
}

TEST(World, ShorterMessagesAreRefused) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has nobody to send to";
  std::vector<float> values(8, 1.0F);
  if (rank() == 0) shared_world().start_send(values.data(), 2, DType::float32, 1, 3)->wait();
  if (rank() != 1) return;
  const PendingPtr received = shared_world().start_receive(values.data(), 4, DType::float32, 0, 3);
  const std::string text = error_of([&] { received->wait(); });
  EXPECT_NE(text.find("has received 2 elements from rank 0 with tag 3, and not 4"), std::string::npos) << text;
}

TEST(World, PlacesThatAreNoRanksAreRefused) {
  if (ranks() == 1) GTEST_SKIP() << "a world of one rank does not look";
  World& world = shared_world();
  float value = 0;
  const auto broadcast = [&] { world.start_broadcast(&value, 1, DType::float32, ranks()); };
  EXPECT_NE(error_of(broadcast).find(fmt::format("the root is rank {}, but", ranks())), std::string::npos);
  const auto send = [&] { world.start_send(&value, 1, DType::float32, -2, 0); };
  EXPECT_NE(error_of(send).find("the destination is rank -2, but"), std::string::npos);
  const auto tag = [&] { world.start_receive(&value, 1, DType::float32, 0, 40000); };
  EXPECT_NE(error_of(tag).find("a tag must be from 0 to 32767, but is 40000"), std::string::npos);
  const auto gather = [&] { world.start_allgather(&value, &value, int64_t{1} << 31, DType::float32); };
  EXPECT_NE(error_of(gather).find("more than the 2147483647"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::world_test
