// What follows from lengths alone.
#include <cmath>
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::lengths_to_ranges_test {
namespace {

Tensor of_lengths(const std::string& type, const std::vector<int32_t>& lengths,
                  const std::vector<Argument>& args = {}) {
  const Tensor l = Tensor::of<int32_t>({static_cast<int64_t>(lengths.size())}, lengths);
  return run_op_on(make_op(type, {"L"}, {"Y"}, args), {{"L", l}})[0];
}

TEST(LengthsToRanges, FirstPlacesAndLengths) {
  EXPECT_EQ(compare(of_lengths("LengthsToRanges", {2, 0, 3}), Tensor::of<int32_t>({3, 2}, {0, 2, 2, 0, 2, 3}), 0), "");
  EXPECT_EQ(of_lengths("LengthsToRanges", {}).str(), "int32[0, 2]");
}

TEST(LengthsToRanges, SegmentIds) {
  EXPECT_EQ(compare(of_lengths("LengthsToSegmentIds", {2, 0, 3}), Tensor::of<int32_t>({5}, {0, 0, 2, 2, 2}), 0), "");
  EXPECT_EQ(of_lengths("LengthsToSegmentIds", {0, 0}).str(), "int32[0]");
}

TEST(LengthsToRanges, RangeFill) {
  EXPECT_EQ(compare(of_lengths("LengthsRangeFill", {2, 0, 3}), Tensor::of<int32_t>({5}, {0, 1, 0, 1, 2}), 0), "");
  EXPECT_EQ(of_lengths("LengthsRangeFill", {}).str(), "int32[0]");
}

TEST(LengthsToRanges, Weights) {
  const float half = 1 / std::sqrt(2.0f);
  EXPECT_EQ(compare(of_lengths("LengthsToWeights", {1, 0, 2}), Tensor::of<float>({3}, {1, half, half}), 1e-7), "");
  const Tensor by_length = of_lengths("LengthsToWeights", {4, 1}, {make_arg("power", 1.0f)});
  EXPECT_EQ(compare(by_length, Tensor::of<float>({5}, {0.25f, 0.25f, 0.25f, 0.25f, 1}), 1e-7), "");
}

TEST(LengthsToRanges, AsAShape) {
  EXPECT_EQ(compare(of_lengths("LengthsToShape", {4, 4, 4}), Tensor::of<int32_t>({2}, {3, 4}), 0), "");
  EXPECT_EQ(compare(of_lengths("LengthsToShape", {}), Tensor::of<int32_t>({2}, {0, 0}), 0), "");
}

TEST(LengthsToRanges, Errors) {
  auto fact = [](const std::string& type, const std::vector<int32_t>& lengths) {
    const std::string text = error_of([&] { of_lengths(type, lengths); });
    return text.substr(0, text.find('\n'));
  };
  for (const std::string type :
       {"LengthsToRanges", "LengthsToSegmentIds", "LengthsRangeFill", "LengthsToWeights", "LengthsToShape"}) {
    EXPECT_EQ(fact(type, {1, -1}), type + ": length 1 is -1, which is negative");
    const Feeds scalar = {{"L", Tensor::scalar<int32_t>(1)}};
    EXPECT_NE(error_of([&] {
                run_op_on(make_op(type, {"L"}, {"Y"}), scalar);
              }).find("lengths must have one dimension, but have shape []"),
              std::string::npos);
  }
  EXPECT_EQ(fact("LengthsToShape", {2, 2, 3}), "LengthsToShape: length 2 is 3, but length 0 is 2");
  const int32_t most = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(fact("LengthsToRanges", {most, 1, 1}),
            "LengthsToRanges: the first place of a segment, 2147483648 does not fit int32");
}

}  // namespace
}  // namespace stepnet::testing::lengths_to_ranges_test
