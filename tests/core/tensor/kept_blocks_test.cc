// What the CPU's allocator keeps for later requests: never more, with what is live, than the most that was live at a
// time. It is seen in the pages that the process has.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "stepnet/device.h"
#include "stepnet/tensor.h"

namespace stepnet::kept_blocks_test {
namespace {

// Bytes of pages that are not of files.
int64_t pages() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  return -1;
}

constexpr int64_t kMegabyte = 1000000;

Tensor written(int64_t megabytes) {
  Tensor t = Tensor::empty(DType::uint8, {megabytes * kMegabyte});
  std::memset(t.raw(), 1, t.bytes());
  return t;
}

class KeptBlocks : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "under a sanitizer nothing is kept";
#endif
    give_back_free_memory();
    before_ = pages();
    if (before_ < 0) GTEST_SKIP() << "this system does not say how many pages a process has";
  }
  int64_t more_pages() const { return (pages() - before_) / kMegabyte; }

 private:
  int64_t before_ = 0;
};

TEST_F(KeptBlocks, AreTakenAgain) {
  Tensor first = written(20);
  const void* const place = first.raw();
  first = {};
  EXPECT_EQ(written(20).raw(), place);
}

TEST_F(KeptBlocks, GoWhereOthersWouldComeBesideThem) {
  std::vector<Tensor> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(written(60 + i));
  blocks.clear();
  EXPECT_GT(more_pages(), 200);
  const Tensor other = written(200);
  EXPECT_LT(more_pages(), 260);
}

TEST_F(KeptBlocks, AreShortenedForSmallerOnes) {
  Tensor first = written(200);
  const void* const place = first.raw();
  first = {};
  const Tensor other = written(150);
  EXPECT_EQ(other.raw(), place);
  EXPECT_LT(more_pages(), 210);
}

TEST_F(KeptBlocks, AreGivenBack) {
  written(100);
  give_back_free_memory();
  EXPECT_LT(more_pages(), 10);
}

}  // namespace
}  // namespace stepnet::kept_blocks_test
