// Memory for packed matrices that several take turns with.
#include "core/compute/packed_weights.h"

#include <gtest/gtest.h>

#include <set>

#include "core/compute/product.h"
#include "core/tensor/dry_device.h"

namespace stepnet::testing::packed_weights_test {
namespace {

using Block = std::shared_ptr<ProductMemory>;

TEST(PackMemory, TheSmallestThatFitsAndNoneTwice) {
  PackMemory memory;
  PackMemory::Free first, second;
  const Block small = memory.take(100, first), large = memory.take(1000, first);
  EXPECT_NE(memory.take(100, first), small);  // which goes at once
  EXPECT_EQ(memory.take(500, second), large);
  EXPECT_EQ(memory.take(10, second), small);
  const Block other = memory.take(10, second);
  EXPECT_TRUE(other != small && other != large);
  EXPECT_EQ(memory.take(5, first), other);  // the second has made it meanwhile
}

TEST(PackMemory, WhatNobodyHasIsGone) {
  PackMemory memory;
  PackMemory::Free before;
  const size_t bytes = memory.take(1 << 20, before)->size();
  PackMemory::Free now;
  EXPECT_LT(memory.take(64, now)->size(), bytes);
}

// Nothing is timed: if each of them looked at all others, this would not end.
TEST(PackMemory, ManyOfOneSize) {
  DryScope dry;
  PackMemory memory;
  PackMemory::Free first;
  std::set<Block> all;
  for (int i = 0; i < 100'000; ++i) all.insert(memory.take(256, first));
  EXPECT_EQ(all.size(), 100'000U);
  PackMemory::Free second;
  for (int i = 0; i < 100'000; ++i) EXPECT_EQ(all.count(memory.take(256, second)), 1U);
  EXPECT_EQ(all.count(memory.take(256, second)), 0U);
}

}  // namespace
}  // namespace stepnet::testing::packed_weights_test
