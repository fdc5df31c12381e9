// ReduceL1 against a walk over all elements and central differences.
#include <cmath>

#include "tests/operators/reduce_test.h"

namespace stepnet::testing::reduce_l1_test {
namespace {

TEST(ReduceL1, AddsAbsoluteValues) {
  EXPECT_EQ(check_reduction("ReduceL1", {0, [](double sum, double v) { return sum + std::abs(v); }}), "");
}

TEST(ReduceL1, Gradients) { EXPECT_EQ(check_reduction_gradients("ReduceL1"), ""); }

TEST(ReduceL1, ZeroHasTheGradientZero) {
  const Feeds feeds = gradient_feeds("ReduceL1", Tensor::of<float>({3}, {-2, 0, 5}), Tensor::of<float>({1}, {3}));
  const Tensor dx = run_op_on(make_op("ReduceL1Gradient", {"dY", "X", "Y"}, {"dX"}), feeds)[0];
  EXPECT_EQ(compare(dx, Tensor::of<float>({3}, {-3, 0, 3}), 0), "");
}

TEST(ReduceL1, OfNothingIsZero) {
  const OperatorDef def = reduction("ReduceL1", {0}, false);
  EXPECT_EQ(compare(run_op_on(def, {{"X", normal<float>({0, 2})}})[0], Tensor::zeros(DType::float32, {2}), 0), "");
}

TEST(ReduceL1, TheGivenGradientHasTheShapeOfY) {
  const std::string text = error_of([] {
    run_op_on(make_op("ReduceL1Gradient", {"dY", "X"}, {"dX"}),
              {{"dY", normal<float>({3})}, {"X", normal<float>({2, 3})}});
  });
  EXPECT_NE(text.find("dY is [3], but X [2, 3] is reduced to [1, 1]"), std::string::npos) << text;
}

TEST(ReduceL1, GradientsOfGradients) { EXPECT_EQ(check_reduction_second_order("ReduceL1", {"dY"}), ""); }

}  // namespace
}  // namespace stepnet::testing::reduce_l1_test
