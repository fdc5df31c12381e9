// ReduceL2 against a walk over all elements and central differences.
#include <cmath>

#include "tests/operators/reduce_test.h"

namespace stepnet::testing::reduce_l2_test {
namespace {

NaiveReduction norm() {
  return {0, [](double sum, double v) { return sum + v * v; }, [](double sum, double) { return std::sqrt(sum); }};
}

TEST(ReduceL2, TakesNorms) { EXPECT_EQ(check_reduction("ReduceL2", norm()), ""); }

TEST(ReduceL2, Gradients) { EXPECT_EQ(check_reduction_gradients("ReduceL2"), ""); }

TEST(ReduceL2, ANormOfZeroHasTheGradientZero) {
  const Feeds feeds = gradient_feeds("ReduceL2", Tensor::of<float>({2}, {0, 0}), Tensor::of<float>({1}, {3}));
  const Tensor dx = run_op_on(make_op("ReduceL2Gradient", {"dY", "X", "Y"}, {"dX"}), feeds)[0];
  EXPECT_EQ(compare(dx, Tensor::of<float>({2}, {0, 0}), 0), "");
}

TEST(ReduceL2, OfNothingIsZero) {
  const OperatorDef def = reduction("ReduceL2", {0}, false);
  EXPECT_EQ(compare(run_op_on(def, {{"X", normal<float>({0, 2})}})[0], Tensor::zeros(DType::float32, {2}), 0), "");
}

TEST(ReduceL2, BadShapesAreNamed) {
  const std::string text = error_of([] {
    run_op_on(make_op("ReduceL2Gradient", {"dY", "X", "Y"}, {"dX"}),
              {{"dY", normal<float>({1, 1})}, {"X", normal<float>({2, 3})}, {"Y", normal<float>({1})}});
  });
  EXPECT_NE(text.find("Y is [1], but X [2, 3] is reduced to [1, 1]"), std::string::npos) << text;
}

TEST(ReduceL2, GradientsOfGradients) { EXPECT_EQ(check_reduction_second_order("ReduceL2", {"dY", "X", "Y"}), ""); }

TEST(ReduceL2, ANormOfZeroHasDerivativesOfZero) {
  const Tensor zero = Tensor::zeros(DType::float64, {1, 2}), one = Tensor::of<double>({1, 1}, {1});
  const OperatorDef def = make_op("ReduceL2Gradient", {"dY", "X", "Y"}, {"dX"}, {make_arg("axes", Axes{1})});
  const Feeds feeds = {{"dY", one}, {"X", zero}, {"Y", Tensor::zeros(DType::float64, {1, 1})}};
  EXPECT_EQ(check_gradient(def, feeds, {"dY", "X"}), "");
}

}  // namespace
}  // namespace stepnet::testing::reduce_l2_test
