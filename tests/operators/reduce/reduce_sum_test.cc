// ReduceSum against a walk over all elements and central differences, to the second order.
#include "tests/operators/reduce_test.h"

namespace stepnet::testing::reduce_sum_test {
namespace {

TEST(ReduceSum, AddsOverTheAxes) {
  EXPECT_EQ(check_reduction("ReduceSum", {0, [](double sum, double v) { return sum + v; }}), "");
}

TEST(ReduceSum, Gradients) { EXPECT_EQ(check_reduction_gradients("ReduceSum"), ""); }

TEST(ReduceSum, GradientsOfGradients) {
  for (const bool keepdims : {false, true}) {
    OperatorDef def =
        make_op("ReduceSumGradient", {"dY", "X"}, {"dX"}, {make_arg("axes", Axes{1}), make_arg("keepdims", keepdims)});
    const Shape y = keepdims ? Shape{2, 1, 4} : Shape{2, 4};
    EXPECT_EQ(check_gradient(def, {{"dY", normal<double>(y)}, {"X", normal<double>({2, 3, 4})}}, {"dY"}), "");
  }
}

TEST(ReduceSum, DimensionsStayByDefault) {
  EXPECT_EQ(run_op_on(make_op("ReduceSum", {"X"}, {"Y"}), {{"X", normal<float>({2, 3})}})[0].shape(), (Shape{1, 1}));
}

TEST(ReduceSum, OfNothingIsZero) {
  const Feeds feeds = {{"X", normal<float>({2, 0, 3})}};
  EXPECT_EQ(compare(run_op_on(reduction("ReduceSum", {1}, false), feeds)[0], Tensor::zeros(DType::float32, {2, 3}), 0),
            "");
  EXPECT_EQ(compare(run_op_on(reduction("ReduceSum", {}, false), feeds)[0], Tensor::scalar(0.0F), 0), "");
  EXPECT_EQ(check_gradient(reduction("ReduceSum", {1}, false), {{"X", normal<double>({2, 0, 3})}}, {"X"}), "");
}

TEST(ReduceSum, LongRowsOfFloatsAreAddedInDouble) {
  Tensor x = Tensor::empty(DType::float32, {1 << 20});
  std::ranges::fill(x.span<float>(), 0.1F);
  EXPECT_EQ(run_op_on(reduction("ReduceSum", {0}, false), {{"X", x}})[0].item<float>(), 0.1F * (1 << 20));
}

TEST(ReduceSum, GradientNetsOfThePublicFormatGiveYToo) {
  const Feeds feeds = gradient_feeds("ReduceSum", normal<float>({2, 3}), Tensor::of<float>({1, 1}, {2.5F}));
  const Tensor dx = run_op_on(make_op("ReduceSumGradient", {"dY", "X", "Y"}, {"dX"}), feeds)[0];
  EXPECT_EQ(compare(dx, Tensor::of<float>({2, 3}, {2.5F, 2.5F, 2.5F, 2.5F, 2.5F, 2.5F}), 0), "");
}

TEST(ReduceSum, BadAxesAndShapesAreNamed) {
  auto error = [](const Axes& axes) {
    return error_of([&] { run_op_on(reduction("ReduceSum", axes, true), {{"X", normal<float>({2, 3})}}); });
  };
  EXPECT_NE(error({2}).find("axis 2 is out of range for 2 dimensions"), std::string::npos);
  EXPECT_NE(error({-3}).find("axis -3 is out of range for 2 dimensions"), std::string::npos);
  EXPECT_NE(error({1, 0, -1}).find("argument \"axes\" names dimension 1 twice"), std::string::npos);
  const std::string gradient = error_of([] {
    run_op_on(make_op("ReduceSumGradient", {"dY", "X"}, {"dX"}),
              {{"dY", normal<float>({2})}, {"X", normal<float>({2, 3})}});
  });
  EXPECT_NE(gradient.find("dY is [2], but X [2, 3] is reduced to [1, 1]"), std::string::npos) << gradient;
}

}  // namespace
}  // namespace stepnet::testing::reduce_sum_test
