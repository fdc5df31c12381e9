// Softsign and SoftsignGradient against the formula and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::softsign_test {
namespace {

TEST(Softsign, ValuesAndGradient) {
  const OperatorDef def = make_op("Softsign", {"X"}, {"Y"});
  EXPECT_EQ(check_unary(
                def, [](double x) { return x / (1 + std::abs(x)); }, -3, 3, InPlace::no_gradient),
            "");
}

TEST(Softsign, GradientOfGradient) { EXPECT_EQ(check_gradient_op("SoftsignGradient", "X", -3, 3, true), ""); }

}  // namespace
}  // namespace stepnet::testing::softsign_test
