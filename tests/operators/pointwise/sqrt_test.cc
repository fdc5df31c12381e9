// Sqrt against the library's function and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::sqrt_test {
namespace {

OperatorDef sqrt_op() { return make_op("Sqrt", {"X"}, {"Y"}); }

TEST(Sqrt, ValuesAndGradient) {
  EXPECT_EQ(check_unary(
                sqrt_op(), [](double x) { return std::sqrt(x); }, 0.3, 4, InPlace::fine),
            "");
}

TEST(Sqrt, OfZeroAndNegativeNumbers) {
  const Tensor y = run_op_on(sqrt_op(), {{"X", Tensor::of<float>({2}, {0, -1})}})[0];
  EXPECT_EQ(y.data<float>()[0], 0);
  EXPECT_TRUE(std::isnan(y.data<float>()[1]));
}

TEST(Sqrt, IntegersAreRefused) {
  EXPECT_NE(error_of([&] {
              run_op_on(sqrt_op(), {{"X", integers<int32_t>({2}, 1, 2)}});
            }).find("there is no kernel for elements of type int32; there are kernels for float, double"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sqrt_test
