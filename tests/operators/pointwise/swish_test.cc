// Swish and SwishGradient against the formula and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::swish_test {
namespace {

OperatorDef gradient_op(const char* output = "dX") { return make_op("SwishGradient", {"X", "Y", "dY"}, {output}); }

TEST(Swish, ValuesAndGradient) {
  const OperatorDef def = make_op("Swish", {"X"}, {"Y"});
  EXPECT_EQ(check_unary(
                def, [](double x) { return x / (1 + std::exp(-x)); }, -4, 4, InPlace::refused),
            "");
}

TEST(Swish, GradientOfGradient) {
  const Feeds feeds = {{"X", normal<double>({4, 3}, 1, 0, 2)},
                       {"Y", Tensor::zeros(DType::float64, {4, 3})},
                       {"dY", normal<double>({4, 3}, 2)}};
  EXPECT_EQ(check_gradient(gradient_op(), feeds, {"X", "dY"}), "");
  EXPECT_EQ(compare(run_op_on(gradient_op("dY"), feeds)[0], run_op_on(gradient_op(), feeds)[0], 0), "");
}

TEST(Swish, GradientShapesMustBeEqual) {
  Feeds feeds = {{"X", normal<float>({2})}, {"Y", normal<float>({2})}, {"dY", normal<float>({3})}};
  EXPECT_NE(error_of([&] { run_op_on(gradient_op(), feeds); }).find("X is [2], but dY [3]"), std::string::npos);
  feeds[1].second = normal<float>({4});
  EXPECT_NE(error_of([&] { run_op_on(gradient_op(), feeds); }).find("X is [2], but Y [4]"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::swish_test
