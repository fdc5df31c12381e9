// LeakyRelu and LeakyReluGradient against the formula and central differences.
#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::leaky_relu_test {
namespace {

OperatorDef leaky(const std::vector<Argument>& args, const char* output = "Y") {
  return make_op("LeakyRelu", {"X"}, {output}, args);
}

UnaryFunction bent(float alpha) {
  return [slope = static_cast<double>(alpha)](double x) { return x > 0 ? x : slope * x; };
}

TEST(LeakyRelu, ValuesAndGradient) {
  EXPECT_EQ(check_unary(leaky({}), bent(0.01F), -3, 3, InPlace::fine), "");
  for (const float alpha : {0.0F, 0.3F, 1.5F})
    EXPECT_EQ(check_unary(leaky({make_arg("alpha", alpha)}), bent(alpha), -3, 3, InPlace::fine), "") << alpha;
}

TEST(LeakyRelu, GradientOfGradient) {
  EXPECT_EQ(check_gradient_op("LeakyReluGradient", "Y", -2, 2, false, {make_arg("alpha", 0.3F)}), "");
}

// Y is then positive on both sides.
TEST(LeakyRelu, WithANegativeSlopeTheGradientReadsX) {
  const std::vector<Argument> args = {make_arg("alpha", -0.5F)};
  const Feeds feeds = {{"X", uniform<double>({4, 5}, -2, 2)}};
  EXPECT_EQ(compare(run_op_on(leaky(args), feeds)[0], mapped(feeds[0].second, bent(-0.5F)), 0), "");
  EXPECT_EQ(check_gradient(leaky(args), feeds, {"X"}), "");
  EXPECT_NE(error_of([&] {
              check_gradient(leaky(args, "X"), feeds, {"X"});
            }).find("the gradient reads version 0 of \"X\", but operator 0 (LeakyRelu) has made it version 1"),
            std::string::npos);
}

TEST(LeakyRelu, GradientAtZeroIsThatOfTheSlope) {
  const Feeds feeds = {{"Y", Tensor::of<float>({2}, {0, 1})}, {"dY", Tensor::of<float>({2}, {6, 7})}};
  const OperatorDef def = make_op("LeakyReluGradient", {"Y", "dY"}, {"dX"}, {make_arg("alpha", 0.5F)});
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<float>({2}, {3, 7}), 0), "");
}

}  // namespace
}  // namespace stepnet::testing::leaky_relu_test
