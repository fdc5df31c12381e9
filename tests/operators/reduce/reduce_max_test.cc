// ReduceMax against a walk over all elements and central differences.
#include <array>
#include <cmath>
#include <limits>

#include "tests/operators/reduce_test.h"

namespace stepnet::testing::reduce_max_test {
namespace {

TEST(ReduceMax, ChoosesOverTheAxes) {
  EXPECT_EQ(check_reduction("ReduceMax", {-HUGE_VAL, [](double most, double v) { return std::max(most, v); }}), "");
}

TEST(ReduceMax, Integers) {
  const Tensor x = Tensor::of<int64_t>({3}, {7, -2, 5});
  EXPECT_EQ(run_op_on(make_op("ReduceMax", {"X"}, {"Y"}), {{"X", x}})[0].item<int64_t>(), 7);
}

TEST(ReduceMax, Gradients) { EXPECT_EQ(check_reduction_gradients("ReduceMax"), ""); }

TEST(ReduceMax, EachOfEqualElementsGetsAllOfTheGradient) {
  const Feeds feeds = gradient_feeds("ReduceMax", Tensor::of<float>({4}, {1, 4, 4, 2}), Tensor::of<float>({1}, {3}));
  EXPECT_EQ(feeds[2].second.item<float>(), 4);
  const Tensor dx = run_op_on(make_op("ReduceMaxGradient", {"dY", "X", "Y"}, {"dX"}), feeds)[0];
  EXPECT_EQ(compare(dx, Tensor::of<float>({4}, {0, 3, 3, 0}), 0), "");
}

TEST(ReduceMax, NaNAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const auto& values : {std::array{nan, 1.0F, 2.0F}, {1.0F, nan, 2.0F}, {1.0F, 2.0F, nan}}) {
    const Tensor row = Tensor::of<float>({1, 3}, values);
    for (const Tensor& x : {row, row.reshaped({3, 1})}) {
      const Tensor y = run_op_on(make_op("ReduceMax", {"X"}, {"Y"}), {{"X", x}})[0];
      EXPECT_TRUE(std::isnan(y.item<float>()));
    }
  }
  for (const float sign : {1.0F, -1.0F}) {
    const Tensor x = Tensor::of<float>({2}, {sign * infinity, sign * infinity});
    EXPECT_EQ(run_op_on(make_op("ReduceMax", {"X"}, {"Y"}), {{"X", x}})[0].item<float>(), sign * infinity);
  }
}

TEST(ReduceMax, OfNothingIsAnError) {
  auto run = [](const Shape& shape) {
    return run_op_on(reduction("ReduceMax", {1}, false), {{"X", normal<float>(shape)}});
  };
  EXPECT_NE(error_of([&] {
              run({2, 0});
            })
                .find("X [2, 0] has no elements along the dimensions to be reduced; nothing "
                      "has no maximum or minimum"),
            std::string::npos);
  EXPECT_EQ(run({0, 0})[0].shape(), Shape{0});
  EXPECT_EQ(run({0, 3})[0].shape(), Shape{0});
}

TEST(ReduceMax, GradientsOfGradients) { EXPECT_EQ(check_reduction_second_order("ReduceMax", {"dY"}), ""); }

}  // namespace
}  // namespace stepnet::testing::reduce_max_test
