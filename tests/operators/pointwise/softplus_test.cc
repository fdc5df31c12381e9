// Softplus and SoftplusGradient against the formula and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::softplus_test {
namespace {

OperatorDef softplus_op() { return make_op("Softplus", {"X"}, {"Y"}); }

TEST(Softplus, ValuesAndGradient) {
  EXPECT_EQ(check_unary(
                softplus_op(), [](double x) { return std::log1p(std::exp(x)); }, -4, 4, InPlace::fine),
            "");
}

TEST(Softplus, SmallAndLargeNumbers) {
  const Tensor y = run_op_on(softplus_op(), {{"X", Tensor::of<double>({3}, {-50, 1000, -1000})}})[0];
  EXPECT_NEAR(y.data<double>()[0] / std::exp(-50.0), 1, 1e-13);
  EXPECT_EQ(y.data<double>()[1], 1000);
  EXPECT_NEAR(y.data<double>()[2], 0, 1e-300);
}

TEST(Softplus, GradientOfSmallResults) {
  const Feeds feeds = {{"Y", Tensor::scalar(1e-20)}, {"dY", Tensor::scalar(3.0)}};
  const Tensor dx = run_op_on(make_op("SoftplusGradient", {"Y", "dY"}, {"dX"}), feeds)[0];
  EXPECT_NEAR(dx.item<double>() / 3e-20, 1, 1e-14);
}

TEST(Softplus, GradientOfGradient) { EXPECT_EQ(check_gradient_op("SoftplusGradient", "Y", 0.1, 3, true), ""); }

}  // namespace
}  // namespace stepnet::testing::softplus_test
