#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::segment_ids_to_lengths_test {
namespace {

Tensor of_ids(const std::string& type, const Tensor& ids) {
  return run_op_on(make_op(type, {"S"}, {"Y"}), {{"S", ids}})[0];
}

Tensor of_ids(const std::string& type, const Tensor& ids, int64_t rows) {
  return run_op_on(make_op(type, {"S", "D"}, {"Y"}), {{"S", ids}, {"D", normal<float>({rows, 2})}})[0];
}

TEST(SegmentIdsToLengths, CountsPlaces) {
  const Tensor ids = Tensor::of<int32_t>({5}, {0, 0, 2, 2, 2});
  EXPECT_EQ(compare(of_ids("SegmentIdsToLengths", ids), Tensor::of<int32_t>({3}, {2, 0, 3}), 0), "");
  EXPECT_EQ(compare(of_ids("SegmentIdsToLengths", ids, 5), Tensor::of<int32_t>({5}, {2, 0, 3, 0, 0}), 0), "");
  EXPECT_EQ(of_ids("SegmentIdsToLengths", Tensor::of<int64_t>({0}, {})).str(), "int32[0]");
  EXPECT_EQ(
      compare(of_ids("SegmentIdsToLengths", Tensor::of<int64_t>({0}, {}), 2), Tensor::of<int32_t>({2}, {0, 0}), 0), "");
}

TEST(SegmentIdsToLengths, FindsRanges) {
  const Tensor ids = Tensor::of<int64_t>({4}, {1, 1, 1, 3});
  EXPECT_EQ(compare(of_ids("SegmentIdsToRanges", ids), Tensor::of<int32_t>({4, 2}, {0, 0, 0, 3, 3, 0, 3, 1}), 0), "");
  EXPECT_EQ(
      compare(of_ids("SegmentIdsToRanges", ids, 5), Tensor::of<int32_t>({5, 2}, {0, 0, 0, 3, 3, 0, 3, 1, 4, 0}), 0),
      "");
  EXPECT_EQ(of_ids("SegmentIdsToRanges", Tensor::of<int32_t>({0}, {})).str(), "int32[0, 2]");
}

TEST(SegmentIdsToLengths, Errors) {
  for (const std::string type : {"SegmentIdsToLengths", "SegmentIdsToRanges"}) {
    auto fact = [&](const Tensor& ids, int64_t rows) {
      const std::string text = error_of([&] { rows < 0 ? of_ids(type, ids) : of_ids(type, ids, rows); });
      return text.substr(0, text.find('\n'));
    };
    EXPECT_EQ(fact(Tensor::of<int32_t>({3}, {0, 2, 1}), 3),
              type + ": segment id 2 is 1, which is less than 2 before it");
    EXPECT_EQ(fact(Tensor::of<int32_t>({3}, {0, 3, 4}), 3), type + ": segment id 1 is 3, which is outside of 0 to 2");
    EXPECT_EQ(fact(Tensor::of<int64_t>({2}, {-1, 0}), -1), type + ": segment id 0 is -1, which is outside of 0 to 0");
    EXPECT_EQ(fact(Tensor::of<int64_t>({2}, {5, 1}), -1), type + ": segment id 0 is 5, which is outside of 0 to 1");
    EXPECT_EQ(fact(Tensor::of<int64_t>({1}, {std::numeric_limits<int64_t>::max()}), -1),
              type + ": the last segment id is 9223372036854775807, which is too large");
    EXPECT_EQ(fact(Tensor::scalar<int32_t>(1), -1), type + ": segment_ids must have one dimension, but have shape []");
  }
}

}  // namespace
}  // namespace stepnet::testing::segment_ids_to_lengths_test
