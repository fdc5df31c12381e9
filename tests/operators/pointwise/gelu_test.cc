// Gelu and GeluGradient against the formula and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::gelu_test {
namespace {

OperatorDef gelu_op(const std::vector<Argument>& args = {}) { return make_op("Gelu", {"X"}, {"Y"}, args); }
OperatorDef gradient_op(const char* output = "dX") { return make_op("GeluGradient", {"dY", "X"}, {output}); }

TEST(Gelu, ValuesAndGradient) {
  const auto exact = [](double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; };
  EXPECT_EQ(check_unary(gelu_op({make_arg("fast_gelu", 0)}), exact, -4, 4, InPlace::no_gradient), "");
}

TEST(Gelu, SmallResultsAreExact) {
  const Tensor y = run_op_on(gelu_op(), {{"X", Tensor::scalar(-10.0)}})[0];
  EXPECT_NEAR(y.item<double>() / (-5 * std::erfc(10 / std::sqrt(2.0))), 1, 1e-12);
}

TEST(Gelu, GradientOfGradient) {
  const Feeds feeds = {{"dY", normal<double>({4, 3}, 2)}, {"X", normal<double>({4, 3}, 1, 0, 2)}};
  EXPECT_EQ(check_gradient(gradient_op(), feeds, {"dY", "X"}, 1e-9), "");
  EXPECT_EQ(compare(run_op_on(gradient_op("dY"), feeds)[0], run_op_on(gradient_op(), feeds)[0], 0), "");
}

TEST(Gelu, BadInputIsNamed) {
  EXPECT_NE(error_of([&] {
              run_op_on(gradient_op(), {{"dY", normal<float>({3})}, {"X", normal<float>({2})}});
            }).find("X is [2], but dY [3]"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(gelu_op({make_arg("fast_gelu", 1)}), {{"X", normal<float>({2})}});
            }).find("argument \"fast_gelu\" must be 0, as only the exact function is there"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::gelu_test
