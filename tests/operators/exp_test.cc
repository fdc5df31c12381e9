// Exp against the library's function and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing {
namespace {

OperatorDef exp_op() { return make_op("Exp", {"X"}, {"Y"}); }

TEST(Exp, ValuesAndGradient) {
  EXPECT_EQ(check_unary(
                exp_op(), [](double x) { return std::exp(x); }, -3, 3, InPlace::fine),
            "");
}

TEST(Exp, OfLargeAndSmallNumbersIsFinite) {
  const Tensor y = run_op_on(exp_op(), {{"X", Tensor::of<double>({4}, {-800, -600, 600, 800})}})[0];
  for (const double v : y.span<double>()) EXPECT_TRUE(std::isfinite(v));
  EXPECT_NEAR(y.data<double>()[1] / std::exp(-600), 1, 1e-13);
  EXPECT_NEAR(y.data<double>()[2] / std::exp(600), 1, 1e-13);
}

TEST(Exp, IntegersAreRefused) {
  EXPECT_NE(error_of([&] {
              run_op_on(exp_op(), {{"X", integers<int32_t>({2}, 1, 2)}});
            }).find("there is no kernel for elements of type int32; there are kernels for float, double"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing
