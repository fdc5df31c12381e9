#include "core/data/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "stepnet/error.h"
#include "tests/core/errors.h"

namespace stepnet::testing::read_ahead_test {
namespace {

// Batches of one number, the position; it fails at one of them.
class Counting final : public BatchSource {
 public:
  explicit Counting(int64_t fails_at = -1) : fails_at_(fails_at) {}
  void next(Batch& batch) override {
    require(position_ != fails_at_, "no batch {}", position_);
    Tensor& x = batch.blobs["x"];
    if (!x.defined()) x = Tensor::empty(DType::int64, {1});
    x.data<int64_t>()[0] = position_;
    batch.starts = position_ % 3 == 0;
    ++position_;
    ++reads;
  }
  int64_t position() const override { return position_; }
  void set_position(int64_t position) override { position_ = position; }

  static std::atomic<int> reads;

 private:
  int64_t position_ = 0, fails_at_;
};
std::atomic<int> Counting::reads{0};

TEST(ReadAhead, GivesTheSameBatches) {
  ReadAhead source(std::make_unique<Counting>());
  Batch batch;
  for (int64_t k = 0; k < 1000; ++k) {
    EXPECT_EQ(source.position(), k);
    source.next(batch);
    ASSERT_EQ(batch.blobs["x"].data<int64_t>()[0], k);
    ASSERT_EQ(batch.starts, k % 3 == 0);
  }
  source.set_position(7);
  EXPECT_EQ(source.position(), 7);
  source.next(batch);
  EXPECT_EQ(batch.blobs["x"].data<int64_t>()[0], 7);
  EXPECT_EQ(source.position(), 8);
}

TEST(ReadAhead, ReadsOneBatchMore) {
  Counting::reads = 0;
  ReadAhead source(std::make_unique<Counting>());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(Counting::reads, 0);  // not before the first is asked for: a position may be set
  Batch batch;
  source.next(batch);
  for (int i = 0; i < 1000 && Counting::reads < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(Counting::reads, 2);
  source.set_position(0);  // what was read ahead is dropped
  source.next(batch);
  EXPECT_EQ(batch.blobs["x"].data<int64_t>()[0], 0);
}

TEST(ReadAhead, FailsWhereTheSourceFails) {
  ReadAhead source(std::make_unique<Counting>(2));
  Batch batch;
  source.next(batch);
  source.next(batch);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_text([&] { source.next(batch); }), "no batch 2");
    EXPECT_EQ(source.position(), 2);
  }
  source.set_position(3);
  source.next(batch);
  EXPECT_EQ(batch.blobs["x"].data<int64_t>()[0], 3);
}

}  // namespace
}  // namespace stepnet::testing::read_ahead_test
