// Which bytes are free for whom; no device is needed.
#include "gpu/runtime/block_cache.h"

#include <gtest/gtest.h>

namespace stepnet::testing::block_cache_test {
namespace {

constexpr size_t kKibi = 1024, kMebi = kKibi * kKibi;
const int kStreams[2] = {};
const void *const kFirst = &kStreams[0], *const kSecond = &kStreams[1];

std::byte* address(size_t at) { return reinterpret_cast<std::byte*>(at); }

class BlockCacheTest : public ::testing::Test {
 protected:
  gpu::Block* take(size_t size, const void* stream = kFirst, bool others = true) {
    return cache_.take(size, stream, others, &from_);
  }
  void add(size_t at, size_t size, const void* stream = kFirst) { cache_.add_segment(address(at), size, stream); }

  gpu::BlockCache cache_;
  const void* from_ = nullptr;
};

TEST_F(BlockCacheTest, SegmentsHoldManySmallBlocks) {
  EXPECT_EQ(gpu::BlockCache::segment_size(512), 2 * kMebi);
  EXPECT_EQ(gpu::BlockCache::segment_size(kMebi), 2 * kMebi);
  EXPECT_EQ(gpu::BlockCache::segment_size(kMebi + 512), 20 * kMebi);
  EXPECT_EQ(gpu::BlockCache::segment_size(10 * kMebi), 20 * kMebi);
  EXPECT_EQ(gpu::BlockCache::segment_size(10 * kMebi + 512), 12 * kMebi);
  EXPECT_EQ(gpu::BlockCache::segment_size(64 * kMebi), 64 * kMebi);
}

TEST_F(BlockCacheTest, ASegmentIsCutIntoBlocks) {
  EXPECT_EQ(take(512), nullptr);
  add(kMebi, 2 * kMebi);
  EXPECT_EQ(cache_.reserved(), 2 * kMebi);
  const gpu::Block* a = take(512);
  const gpu::Block* b = take(kKibi);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->data, address(kMebi));
  EXPECT_EQ(b->data, address(kMebi + 512));
  EXPECT_EQ(b->size, kKibi);
  EXPECT_EQ(from_, nullptr);
  EXPECT_EQ(cache_.find(a->data), a);
  EXPECT_EQ(cache_.find(address(kMebi + 512 + kKibi)), nullptr);  // free
  EXPECT_EQ(cache_.find(address(7)), nullptr);
}

TEST_F(BlockCacheTest, BytesAreOfTheSegmentsThatTheyAreIn) {
  add(kMebi, 2 * kMebi);
  add(8 * kMebi, 2 * kMebi);
  ASSERT_NE(take(512), nullptr);
  for (const size_t at : {kMebi, kMebi + 700, 3 * kMebi - 1, 8 * kMebi}) EXPECT_TRUE(cache_.around(address(at))) << at;
  for (const size_t at : {size_t{7}, kMebi - 1, 3 * kMebi, 10 * kMebi}) EXPECT_FALSE(cache_.around(address(at))) << at;
}

TEST_F(BlockCacheTest, FreedNeighboursJoin) {
  add(kMebi, 2 * kMebi);
  std::byte* data[3] = {};
  for (std::byte*& at : data) at = take(512 * kKibi)->data;
  EXPECT_EQ(take(kMebi), nullptr);
  cache_.give_back(data[0]);
  cache_.give_back(data[2]);  // joins the rest behind it
  EXPECT_EQ(take(2 * kMebi), nullptr);
  cache_.give_back(data[1]);  // joins both
  const gpu::Block* whole = take(2 * kMebi);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->data, address(kMebi));
  EXPECT_EQ(whole->size, 2 * kMebi);
}

TEST_F(BlockCacheTest, TheSmallestBlockIsTaken) {
  add(64 * kMebi, 20 * kMebi);
  add(128 * kMebi, 12 * kMebi);
  add(32 * kMebi, 40 * kMebi);
  EXPECT_EQ(take(11 * kMebi)->data, address(128 * kMebi));
  EXPECT_EQ(take(11 * kMebi)->data, address(64 * kMebi));
}

TEST_F(BlockCacheTest, ARestTooSmallIsNotCutOff) {
  add(kMebi, 20 * kMebi);
  EXPECT_EQ(take(20 * kMebi - 512 * kKibi)->size, 20 * kMebi);
  add(64 * kMebi, 2 * kMebi);
  EXPECT_EQ(take(kMebi)->size, kMebi);
  EXPECT_EQ(take(kMebi - 256)->size, kMebi);
}

TEST_F(BlockCacheTest, ASmallBlockDoesNotTakeALargeSegmentApart) {
  add(kMebi, 20 * kMebi);
  EXPECT_EQ(take(512), nullptr);
  EXPECT_NE(take(2 * kMebi), nullptr);
}

TEST_F(BlockCacheTest, AnotherStreamsBlockNamesThatStream) {
  add(kMebi, 2 * kMebi);
  EXPECT_EQ(take(512, kSecond, false), nullptr);
  gpu::Block* block = take(512, kSecond);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(from_, kFirst);
  EXPECT_EQ(block->stream, kSecond);
  const gpu::Block* rest = take(512);  // is still the first one's
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(from_, nullptr);
  cache_.give_back(block->data);
  EXPECT_EQ(take(512, kSecond)->data, address(kMebi));
  EXPECT_EQ(from_, nullptr);
}

TEST_F(BlockCacheTest, AStreamsOwnBlocksComeFirst) {
  add(32 * kMebi, 12 * kMebi);
  add(64 * kMebi, 20 * kMebi, kSecond);
  EXPECT_EQ(take(11 * kMebi, kSecond)->data, address(64 * kMebi));
}

TEST_F(BlockCacheTest, BlocksOfTwoStreamsDoNotJoin) {
  add(kMebi, 2 * kMebi);
  gpu::Block *a = take(kMebi), *b = take(kMebi, kSecond);
  ASSERT_TRUE(a && b);
  cache_.give_back(a->data);
  cache_.give_back(b->data);
  EXPECT_EQ(take(2 * kMebi), nullptr);
}

TEST_F(BlockCacheTest, UsersAreForgottenWithTheBlock) {
  add(kMebi, 2 * kMebi);
  gpu::Block* block = take(512);
  EXPECT_FALSE(cache_.remembers(kSecond));
  block->users.insert(kSecond);
  EXPECT_TRUE(cache_.remembers(kSecond));
  cache_.give_back(block->data);
  EXPECT_TRUE(take(512)->users.empty());
}

TEST_F(BlockCacheTest, WholeFreeSegmentsAreDropped) {
  add(kMebi, 2 * kMebi);
  add(64 * kMebi, 20 * kMebi);
  const gpu::Block* used = take(512);
  EXPECT_EQ(cache_.drop_free_segments(), std::vector<std::byte*>{address(64 * kMebi)});
  EXPECT_EQ(cache_.reserved(), 2 * kMebi);
  EXPECT_TRUE(cache_.drop_free_segments().empty());
  cache_.give_back(used->data);
  EXPECT_EQ(cache_.drop_free_segments(), std::vector<std::byte*>{address(kMebi)});
  EXPECT_EQ(cache_.reserved(), 0u);
  EXPECT_EQ(take(512), nullptr);
}

// Its pieces cannot join, but nobody uses any of them.
TEST_F(BlockCacheTest, AFreeSegmentOfSeveralStreamsIsDropped) {
  add(kMebi, 2 * kMebi);
  gpu::Block *a = take(kMebi), *b = take(kMebi, kSecond);
  cache_.give_back(a->data);
  EXPECT_TRUE(cache_.drop_free_segments().empty());
  cache_.give_back(b->data);
  EXPECT_EQ(cache_.drop_free_segments(), std::vector<std::byte*>{address(kMebi)});
  EXPECT_EQ(cache_.reserved(), 0u);
  EXPECT_EQ(take(512), nullptr);
  EXPECT_EQ(take(512, kSecond), nullptr);
}

}  // namespace
}  // namespace stepnet::testing::block_cache_test
