#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::gather_ranges_test {
namespace {

const OperatorDef kGather = make_op("GatherRanges", {"D", "R"}, {"Y", "L"});
const OperatorDef kGradient = make_op("GatherRangesGradient", {"D", "R", "d"}, {"dD"});

struct Case {
  Shape data;
  Shape ranges;
  std::vector<int32_t> values;  // first row and number of rows of each range
  int64_t sum;
};
const Case kCases[] = {{{6}, {2, 2, 2}, {0, 1, 2, 2, 4, 1, 0, 6}, 10},
                       {{4, 3}, {1, 3, 2}, {3, 1, 0, 0, 1, 3}, 4},
                       {{2, 1, 2}, {3, 1, 2}, {2, 0, 0, 2, 1, 1}, 3},
                       {{3, 2}, {0, 2, 2}, {}, 0},
                       {{3, 2}, {2, 0, 2}, {}, 0},
                       {{0, 2}, {1, 1, 2}, {0, 0}, 0}};

Feeds feeds_of(const Case& c, const Tensor& data) {
  return {{"D", data}, {"R", Tensor::of<int32_t>(c.ranges, c.values)}};
}

TEST(GatherRanges, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor data = normal<double>(c.data);
    const int64_t row = data.shape().size_between(1, data.rank());
    Tensor y = Tensor::empty(DType::float64, c.data.with(0, c.sum));
    Tensor lengths = Tensor::zeros(DType::int32, {c.ranges[0]});
    int64_t at = 0;
    for (int64_t r = 0; r < c.ranges[0] * c.ranges[1]; ++r)
      for (int64_t i = 0; i < c.values[2 * r + 1]; ++i) {
        for (int64_t j = 0; j < row; ++j) y.data<double>()[at++] = data.data<double>()[(c.values[2 * r] + i) * row + j];
        ++lengths.data<int32_t>()[r / c.ranges[1]];
      }
    const auto out = run_op_on(kGather, feeds_of(c, data));
    EXPECT_EQ(compare(out[0], y, 0), "");
    EXPECT_EQ(compare(out[1], lengths, 0), "");
    EXPECT_EQ(out[1].dtype(), DType::int32);
  }
}

TEST(GatherRanges, TakesAnyType) {
  const Feeds feeds = {{"D", Tensor::of<std::string>({3}, {"a", "b", "c"})},
                       {"R", Tensor::of<int64_t>({1, 2, 2}, {2, 1, 0, 1})}};
  const Tensor y = run_op_on(make_op("GatherRanges", {"D", "R"}, {"Y"}), feeds)[0];
  EXPECT_EQ(y.str(), "string[2]");
  EXPECT_EQ(y.data<std::string>()[0] + y.data<std::string>()[1], "ca");
}

TEST(GatherRanges, Gradients) {
  for (const Case& c : kCases) {
    Feeds feeds = feeds_of(c, normal<double>(c.data));
    EXPECT_EQ(check_gradient(kGather, feeds, {"D"}), "");
    feeds.emplace_back("d", normal<double>(c.data.with(0, c.sum), 3));
    EXPECT_EQ(check_gradient(kGradient, feeds, {"d"}), "");
  }
}

TEST(GatherRanges, Errors) {
  auto fact = [](const Tensor& data, const Tensor& ranges) {
    const std::string text = error_of([&] { run_op_on(kGather, {{"D", data}, {"R", ranges}}); });
    return text.substr(0, text.find('\n'));
  };
  const Tensor data = normal<float>({3, 2});
  const std::string name = "GatherRanges: ";
  EXPECT_EQ(fact(data, Tensor::of<int32_t>({1, 2, 2}, {0, 3, 2, 2})),
            name + "range 1 has 2 rows from row 2 on, but DATA has 3 rows");
  EXPECT_EQ(fact(data, Tensor::of<int32_t>({1, 1, 2}, {-1, 1})),
            name + "range 0 has 1 rows from row -1 on, but DATA has 3 rows");
  EXPECT_EQ(fact(data, Tensor::of<int32_t>({1, 1, 2}, {1, -1})),
            name + "range 0 has -1 rows from row 1 on, but DATA has 3 rows");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_NE(fact(data, Tensor::of<int64_t>({1, 1, 2}, {2, most})).find("range 0 has 9223372036854775807 rows"),
            std::string::npos);
  EXPECT_EQ(fact(data, Tensor::of<int32_t>({1, 2}, {0, 1})), name + "RANGES must be [N, K, 2], but is [1, 2]");
  EXPECT_EQ(fact(data, Tensor::of<int32_t>({1, 1, 1}, {0})), name + "RANGES must be [N, K, 2], but is [1, 1, 1]");
  EXPECT_EQ(fact(normal<float>({}), Tensor::of<int32_t>({1, 1, 2}, {0, 1})),
            name + "DATA is a single value, which has no rows");
  const Feeds feeds = {{"D", data}, {"R", Tensor::of<int32_t>({1, 1, 2}, {0, 2})}, {"d", normal<float>({3, 2})}};
  EXPECT_NE(error_of([&] { run_op_on(kGradient, feeds); }).find("the gradient of OUTPUT must be [2, 2], but is [3, 2]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::gather_ranges_test
