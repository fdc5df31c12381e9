// LengthsMax: against a loop, equal elements, NaN, gradients, and what it refuses.
#include <cmath>
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::lengths_max_test {
namespace {

const OperatorDef kMax = make_op("LengthsMax", {"D", "L"}, {"Y"});
const OperatorDef kGradient = make_op("LengthsMaxGradient", {"D", "Y", "L", "d"}, {"dD"});

struct Case {
  Shape data;
  std::vector<int32_t> lengths;
};
const Case kCases[] = {{{6, 2}, {3, 0, 1, 2}}, {{3}, {3}},   {{2, 1, 2}, {1, 1}},
                       {{0, 2}, {0, 0}},       {{0, 2}, {}}, {{3, 0}, {2, 1}}};

Feeds feeds_of(const Case& c, const Tensor& data) {
  return {{"D", data}, {"L", Tensor::of<int32_t>({static_cast<int64_t>(c.lengths.size())}, c.lengths)}};
}

Tensor maxima(const Case& c, const Tensor& data) {
  const int64_t row = data.shape().size_between(1, data.rank());
  Tensor y = Tensor::zeros(DType::float64, c.data.with(0, static_cast<int64_t>(c.lengths.size())));
  for (int64_t s = 0, at = 0; s < y.dim(0); at += c.lengths[s++])
    for (int64_t j = 0; j < row; ++j)
      for (int64_t k = 0; k < c.lengths[s]; ++k) {
        const double value = data.data<double>()[(at + k) * row + j];
        double& largest = y.data<double>()[s * row + j];
        if (k == 0 || value > largest) largest = value;
      }
  return y;
}

TEST(LengthsMax, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor data = normal<double>(c.data);
    EXPECT_EQ(compare(run_op_on(kMax, feeds_of(c, data))[0], maxima(c, data), 0), "") << c.data.str();
  }
  const Feeds feeds = {{"D", Tensor::of<float>({3}, {-3, -1, -2})}, {"L", Tensor::of<int64_t>({2}, {2, 1})}};
  EXPECT_EQ(compare(run_op_on(kMax, feeds)[0], Tensor::of<float>({2}, {-1, -2}), 0), "");
}

TEST(LengthsMax, NaNIsTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  Feeds feeds = {{"D", Tensor::of<float>({4}, {1, nan, infinity, -infinity})}, {"L", Tensor::of<int32_t>({2}, {3, 1})}};
  const Tensor y = run_op_on(kMax, feeds)[0];
  EXPECT_TRUE(std::isnan(y.data<float>()[0]));
  EXPECT_EQ(y.data<float>()[1], -infinity);
  feeds.emplace_back("Y", y);
  feeds.emplace_back("d", Tensor::of<float>({2}, {5, 7}));
  EXPECT_EQ(compare(run_op_on(kGradient, feeds)[0], Tensor::of<float>({4}, {0, 5, 0, 7}), 0), "");
}

TEST(LengthsMax, Gradients) {
  for (const Case& c : kCases) {
    const Tensor data = normal<double>(c.data);
    Feeds feeds = feeds_of(c, data);
    EXPECT_EQ(check_gradient(kMax, feeds, {"D"}), "") << c.data.str();
    feeds.emplace_back("Y", maxima(c, data));
    feeds.emplace_back("d", normal<double>(feeds.back().second.shape(), 3));
    EXPECT_EQ(check_gradient(kGradient, feeds, {"d"}), "") << c.data.str();
  }
}

TEST(LengthsMax, EqualElementsAllGetTheGradient) {
  const Feeds feeds = {{"D", Tensor::of<float>({3}, {2, 1, 2})},
                       {"L", Tensor::of<int32_t>({1}, {3})},
                       {"Y", Tensor::of<float>({1}, {2})},
                       {"d", Tensor::of<float>({1}, {5})}};
  EXPECT_EQ(compare(run_op_on(kGradient, feeds)[0], Tensor::of<float>({3}, {5, 0, 5}), 0), "");
}

TEST(LengthsMax, Errors) {
  auto fact = [](const OperatorDef& def, const Tensor& data, const Tensor& lengths) {
    const Feeds feeds = {{"D", data}, {"L", lengths}, {"Y", normal<float>({2, 2})}, {"d", normal<float>({1, 2})}};
    const std::string text = error_of([&] { run_op_on(def, feeds); });
    return text.substr(0, text.find('\n'));
  };
  const Tensor data = normal<float>({3, 2});
  EXPECT_EQ(fact(kMax, data, Tensor::of<int32_t>({2}, {2, 2})),
            "LengthsMax: the lengths add up to 4, but there are 3 rows");
  EXPECT_EQ(fact(kMax, data, Tensor::of<int32_t>({2}, {4, -1})), "LengthsMax: length 1 is -1, which is negative");
  EXPECT_EQ(fact(kMax, data, Tensor::scalar<int32_t>(3)),
            "LengthsMax: LENGTHS must have one dimension, but have shape []");
  EXPECT_EQ(fact(kMax, normal<float>({}), Tensor::of<int32_t>({1}, {1})),
            "LengthsMax: DATA is a single value, which has no rows");
  EXPECT_EQ(fact(kGradient, data, Tensor::of<int32_t>({2}, {2, 1})),
            "LengthsMaxGradient: its gradient must be [2, 2], but is [1, 2]");
  EXPECT_EQ(fact(kGradient, data, Tensor::of<int32_t>({1}, {3})),
            "LengthsMaxGradient: OUTPUT must be [1, 2], but is [2, 2]");
}

// As Caffe2 1.10 gives it, with its order of inputs.
TEST(LengthsMax, GradientOfThePublicFormat) {
  const OperatorDef def = make_op("LengthsMaxWithMainInputAndForwardOutputGradient", {"Y", "dY", "L", "D"}, {"dD"});
  const Feeds feeds = {{"Y", Tensor::of<double>({2, 2}, {3, 5, 0, 1})},
                       {"dY", Tensor::of<double>({2, 2}, {1, 2, 3, 4})},
                       {"L", Tensor::of<int32_t>({2}, {3, 1})},
                       {"D", Tensor::of<double>({4, 2}, {1, 5, 3, 2, 3, 2, 0, 1})}};
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<double>({4, 2}, {0, 2, 1, 0, 1, 0, 3, 4}), 0), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}), "");
}

}  // namespace
}  // namespace stepnet::testing::lengths_max_test
