// Elu and EluGradient against the formula and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::elu_test {
namespace {

OperatorDef elu_op(const std::vector<Argument>& args = {}) { return make_op("Elu", {"X"}, {"Y"}, args); }

UnaryFunction bent(double alpha) {
  return [alpha](double x) { return x > 0 ? x : alpha * std::expm1(x); };
}

TEST(Elu, ValuesAndGradient) {
  EXPECT_EQ(check_unary(elu_op(), bent(1), -3, 3, InPlace::fine), "");
  for (const float alpha : {0.0F, 0.25F, 2.0F})
    EXPECT_EQ(check_unary(elu_op({make_arg("alpha", alpha)}), bent(alpha), -3, 3, InPlace::fine), "") << alpha;
}

TEST(Elu, SmallAndLargeNumbers) {
  const Tensor y = run_op_on(elu_op(), {{"X", Tensor::of<float>({3}, {-1e-9F, -1000, 1e30F})}})[0];
  EXPECT_NEAR(y.data<float>()[0] / -1e-9F, 1, 1e-6);
  EXPECT_EQ(y.data<float>()[1], -1);
  EXPECT_EQ(y.data<float>()[2], 1e30F);
}

TEST(Elu, GradientOfGradient) {
  EXPECT_EQ(check_gradient_op("EluGradient", "Y", -0.9, 2, true), "");
  EXPECT_EQ(check_gradient_op("EluGradient", "Y", -0.9, 2, true, {make_arg("alpha", 2.0F)}), "");
}

TEST(Elu, AlphaIsNotNegative) {
  EXPECT_NE(error_of([&] {
              run_op_on(elu_op({make_arg("alpha", -1.0F)}), {{"X", normal<float>({2})}});
            }).find("argument \"alpha\" must be at least 0, but is -1"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::elu_test
