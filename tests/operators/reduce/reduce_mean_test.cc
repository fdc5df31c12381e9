// ReduceMean against a walk over all elements and central differences, to the second order.
#include "tests/operators/reduce_test.h"

namespace stepnet::testing::reduce_mean_test {
namespace {

NaiveReduction mean() {
  return {0, [](double sum, double v) { return sum + v; },
          [](double sum, double count) { return count > 0 ? sum / count : 0; }};
}

TEST(ReduceMean, TakesTheMeanOverTheAxes) { EXPECT_EQ(check_reduction("ReduceMean", mean()), ""); }

TEST(ReduceMean, Gradients) { EXPECT_EQ(check_reduction_gradients("ReduceMean"), ""); }

TEST(ReduceMean, GradientsOfGradients) {
  const OperatorDef def = make_op("ReduceMeanGradient", {"dY", "X"}, {"dX"}, {make_arg("axes", Axes{0, 2})});
  const Feeds feeds = {{"dY", normal<double>({1, 3, 1})}, {"X", normal<double>({2, 3, 4})}};
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}), "");
}

TEST(ReduceMean, OfNothingIsZero) {
  const OperatorDef def = reduction("ReduceMean", {1}, false);
  EXPECT_EQ(compare(run_op_on(def, {{"X", normal<float>({2, 0})}})[0], Tensor::zeros(DType::float32, {2}), 0), "");
  EXPECT_EQ(check_gradient(def, {{"X", normal<double>({2, 0})}}, {"X"}), "");
}

TEST(ReduceMean, TheGivenGradientHasTheShapeOfY) {
  const std::string text = error_of([] {
    run_op_on(make_op("ReduceMeanGradient", {"dY", "X"}, {"dX"}, {make_arg("axes", Axes{0})}),
              {{"dY", normal<float>({3})}, {"X", normal<float>({2, 3})}});
  });
  EXPECT_NE(text.find("dY is [3], but X [2, 3] is reduced to [1, 3]"), std::string::npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::reduce_mean_test
