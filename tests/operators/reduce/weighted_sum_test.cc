#include "tests/operators/op_test.h"

namespace stepnet::testing::weighted_sum_test {
namespace {

const Feeds kFeeds = {{"X", normal<double>({2, 3}, 1)},
                      {"a", Tensor::of<double>({1}, {0.5})},
                      {"Y", normal<double>({2, 3}, 2)},
                      {"b", Tensor::of<double>({1}, {-3})}};
const OperatorDef kSum = make_op("WeightedSum", {"X", "a", "Y", "b"}, {"S"});

TEST(WeightedSum, AddsTermsTimesWeights) {
  Tensor expected = Tensor::zeros(DType::float64, {2, 3});
  for (int i = 0; i < 6; ++i)
    expected.data<double>()[i] = 0.5 * kFeeds[0].second.data<double>()[i] - 3 * kFeeds[2].second.data<double>()[i];
  EXPECT_EQ(compare(run_op_on(kSum, kFeeds)[0], expected, 1e-14), "");
  EXPECT_EQ(compare(run_op_on(make_op("WeightedSum", {"X", "a", "Y", "b"}, {"X"}), kFeeds)[0], expected, 1e-14), "");
}

TEST(WeightedSum, TakesFloatWeightsForAnyTensor) {
  const Feeds feeds = {{"X", normal<double>({2, 3}, 1)}, {"a", Tensor::scalar<float>(2)}};
  const Tensor y = run_op_on(make_op("WeightedSum", {"X", "a"}, {"S"}), feeds)[0];
  EXPECT_EQ(y.str(), "double[2, 3]");
  EXPECT_DOUBLE_EQ(y.data<double>()[5], 2 * feeds[0].second.data<double>()[5]);
  const Feeds empty = {{"X", normal<float>({0, 3})}, {"a", Tensor::scalar<float>(2)}};
  EXPECT_EQ(run_op_on(make_op("WeightedSum", {"X", "a"}, {"S"}), empty)[0].str(), "float[0, 3]");
}

TEST(WeightedSum, Gradient) {
  EXPECT_EQ(check_gradient(kSum, kFeeds, {"X", "Y"}), "");
  EXPECT_EQ(check_gradient(kSum, kFeeds, {"a", "b"}), "");
  EXPECT_EQ(check_gradient(kSum, kFeeds, {"X", "a", "Y", "b"}), "");
  EXPECT_EQ(check_gradient(make_op("WeightedSum", {"X", "a", "Y", "b"}, {"X"}), kFeeds, {"X", "Y"}), "");
}

TEST(WeightedSum, GradientsOfTheGradient) {
  const Feeds feeds = {
      {"dY", normal<double>({2, 3}, 1)}, {"X", normal<double>({2, 3}, 2)}, {"w", Tensor::of<double>({1}, {0.5})}};
  EXPECT_EQ(check_gradient(make_op("WeightedSumWeightGradient", {"dY", "X", "w"}, {"dw"}), feeds, {"dY", "X"}), "");
}

// With the order of the public format: gradients of the tensors, and then of the weights.
TEST(WeightedSum, GradientOfThePublicFormat) {
  Feeds feeds = kFeeds;
  feeds.emplace_back("dY", normal<double>({2, 3}, 3));
  const std::vector<std::string> inputs = {"dY", "X", "a", "Y", "b"};
  const OperatorDef all = make_op("WeightedSumGradient", inputs, {"dX", "dZ", "da", "db"}, {make_arg("grad_on_w", 1)});
  const auto d = run_op_on(all, feeds);
  Tensor expected[] = {Tensor::zeros(DType::float64, {2, 3}), Tensor::zeros(DType::float64, {2, 3}),
                       Tensor::zeros(DType::float64, {1}), Tensor::zeros(DType::float64, {1})};
  for (int i = 0; i < 6; ++i) {
    const double dy = feeds[4].second.data<double>()[i];
    expected[0].data<double>()[i] = 0.5 * dy;
    expected[1].data<double>()[i] = -3 * dy;
    for (const int k : {0, 1}) expected[2 + k].data<double>()[0] += dy * feeds[2 * k].second.data<double>()[i];
  }
  for (int k = 0; k < 4; ++k) EXPECT_EQ(compare(d[k], expected[k], 1e-14), "") << k;
  const OperatorDef tensors = make_op("WeightedSumGradient", inputs, {"dX", "dZ"});
  for (int k = 0; k < 2; ++k) EXPECT_EQ(compare(run_op_on(tensors, feeds)[k], expected[k], 1e-14), "") << k;
  EXPECT_EQ(check_gradient(all, feeds, {"dY", "X", "a", "Y", "b"}), "");
  const auto error = [&](const std::vector<std::string>& in, const std::vector<std::string>& out) {
    return error_of([&] { run_op_on(make_op("WeightedSumGradient", in, out), feeds); });
  };
  EXPECT_NE(error({"dY", "X", "a", "Y"}, {"dX"}).find("but there are 4 inputs"), std::string::npos);
  EXPECT_NE(error(inputs, {"dX", "dZ", "da"}).find("it has 3 outputs for 2 tensors"), std::string::npos);
}

TEST(WeightedSum, RefusesWhatDoesNotFit) {
  auto error = [](const std::vector<std::string>& inputs, const Feeds& feeds, const std::string& output = "S") {
    return error_of([&] { run_op_on(make_op("WeightedSum", inputs, {output}), feeds); });
  };
  EXPECT_NE(error({"X", "a", "Y"}, kFeeds).find("but there are 3 inputs"), std::string::npos);
  EXPECT_NE(error({"X", "Y"}, kFeeds).find("weight 0 must be one value, but has shape [2, 3]"), std::string::npos);
  Feeds other = kFeeds;
  other[2].second = normal<double>({3, 2});
  EXPECT_NE(error({"X", "a", "Y", "b"}, other).find("tensor 1 is double[3, 2], but the first tensor is double[2, 3]"),
            std::string::npos);
  EXPECT_NE(error({"X", "a", "Y", "b"}, kFeeds, "Y").find("cannot have the name of the input"), std::string::npos);
  EXPECT_NE(error({"X", "a"}, {{"X", integers<int32_t>({2}, 0, 1)}, {"a", Tensor::scalar<float>(1)}})
                .find("must be float or double, but are int32"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::weighted_sum_test
