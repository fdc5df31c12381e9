// HardSigmoid and HardSigmoidGradient against the formula and central differences.
#include <algorithm>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::hard_sigmoid_test {
namespace {

OperatorDef hard(const std::vector<Argument>& args = {}) { return make_op("HardSigmoid", {"X"}, {"Y"}, args); }

UnaryFunction line(float alpha, float beta) {
  return [a = static_cast<double>(alpha), b = static_cast<double>(beta)](double x) {
    return std::clamp(a * x + b, 0.0, 1.0);
  };
}

TEST(HardSigmoid, ValuesAndGradient) {
  EXPECT_EQ(check_unary(hard(), line(0.2F, 0.5F), -4, 4, InPlace::fine), "");
  const std::vector<Argument> args = {make_arg("alpha", 0.5F), make_arg("beta", 0.25F)};
  EXPECT_EQ(check_unary(hard(args), line(0.5F, 0.25F), -4, 4, InPlace::fine), "");
}

TEST(HardSigmoid, GradientOfGradient) {
  EXPECT_EQ(check_gradient_op("HardSigmoidGradient", "Y", 0, 1, false), "");
  EXPECT_EQ(check_gradient_op("HardSigmoidGradient", "Y", 0, 1, false, {make_arg("alpha", 0.5F)}), "");
}

TEST(HardSigmoid, GradientAtTheBoundsIsZero) {
  const Feeds feeds = {{"Y", Tensor::of<float>({3}, {0, 0.5F, 1})}, {"dY", Tensor::of<float>({3}, {5, 6, 7})}};
  const OperatorDef def = make_op("HardSigmoidGradient", {"Y", "dY"}, {"dX"}, {make_arg("alpha", 0.5F)});
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<float>({3}, {0, 3, 0}), 0), "");
}

}  // namespace
}  // namespace stepnet::testing::hard_sigmoid_test
