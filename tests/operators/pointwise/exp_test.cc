// Exp against the library's function and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::exp_test {
namespace {

OperatorDef exp_op() { return make_op("Exp", {"X"}, {"Y"}); }

TEST(Exp, ValuesAndGradient) {
  EXPECT_EQ(check_unary(
                exp_op(), [](double x) { return std::exp(x); }, -3, 3, InPlace::fine),
            "");
}

TEST(Exp, OfLargeAndSmallNumbers) {
  const Tensor y = run_op_on(exp_op(), {{"X", Tensor::of<double>({5}, {-800, -600, 600, 709, 800})}})[0];
  EXPECT_NEAR(y.data<double>()[0], 0, 1e-300);
  EXPECT_NEAR(y.data<double>()[1] / std::exp(-600), 1, 1e-13);
  EXPECT_NEAR(y.data<double>()[2] / std::exp(600), 1, 1e-13);
  EXPECT_NEAR(y.data<double>()[3] / std::exp(709), 1, 1e-13);
  EXPECT_TRUE(std::isinf(y.data<double>()[4]));
  const Tensor z = run_op_on(exp_op(), {{"X", Tensor::of<float>({3}, {88, 89, std::nanf("")})}})[0];
  EXPECT_NEAR(z.data<float>()[0] / std::exp(88.0f), 1, 1e-6);
  EXPECT_TRUE(std::isinf(z.data<float>()[1]));
  EXPECT_TRUE(std::isnan(z.data<float>()[2]));
}

TEST(Exp, IntegersAreRefused) {
  EXPECT_NE(error_of([&] {
              run_op_on(exp_op(), {{"X", integers<int32_t>({2}, 1, 2)}});
            }).find("there is no kernel for elements of type int32; there are kernels for float, double"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::exp_test
