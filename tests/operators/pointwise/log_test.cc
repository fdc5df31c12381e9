// Log against the library's function and central differences.
#include <cmath>
#include <limits>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::log_test {
namespace {

OperatorDef log_op() { return make_op("Log", {"X"}, {"Y"}); }

TEST(Log, ValuesAndGradient) {
  EXPECT_EQ(check_unary(
                log_op(), [](double x) { return std::log(x); }, 0.5, 4, InPlace::no_gradient),
            "");
}

TEST(Log, OfZeroAndNegativeNumbers) {
  const Tensor y = run_op_on(log_op(), {{"X", Tensor::of<float>({2}, {0, -1})}})[0];
  EXPECT_EQ(y.data<float>()[0], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(y.data<float>()[1]));
}

TEST(Log, IntegersAreRefused) {
  EXPECT_NE(error_of([&] {
              run_op_on(log_op(), {{"X", integers<int32_t>({2}, 1, 2)}});
            }).find("there is no kernel for elements of type int32; there are kernels for float, double"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::log_test
