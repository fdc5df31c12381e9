#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::learning_rate_test {
namespace {

float rate(const std::string& policy, std::vector<Argument> args, int64_t iter, float base = -2) {
  args.push_back(make_arg("policy", policy));
  args.push_back(make_arg("base_lr", base));
  const auto out =
      run_op_on(make_op("LearningRate", {"iter"}, {"lr"}, args), {{"iter", Tensor::of<int64_t>({1}, {iter})}});
  EXPECT_EQ(out[0].str(), "float[]");
  return out[0].item<float>();
}

const Argument kGamma = make_arg("gamma", 0.5f);
const Argument kPower = make_arg("power", 2.0f);
const Argument kLength = make_arg("num_iter", 10);
const Argument kStart = make_arg("start_multiplier", 0.2f);

TEST(LearningRate, Fixed) {
  EXPECT_FLOAT_EQ(rate("fixed", {}, 0), -2);
  EXPECT_FLOAT_EQ(rate("fixed", {}, 1000), -2);
}

TEST(LearningRate, StepDividesIntegers) {
  const Argument size = make_arg("stepsize", 3);
  EXPECT_FLOAT_EQ(rate("step", {kGamma, size}, 2), -2);
  EXPECT_FLOAT_EQ(rate("step", {kGamma, size}, 3), -1);
  EXPECT_FLOAT_EQ(rate("step", {kGamma, size}, 8), -0.5);
}

TEST(LearningRate, Decays) {
  EXPECT_FLOAT_EQ(rate("exp", {kGamma}, 3), -0.25);
  EXPECT_FLOAT_EQ(rate("inv", {kGamma, kPower}, 6), -2.0f / 16);
  const Argument last = make_arg("max_iter", 8);
  EXPECT_FLOAT_EQ(rate("poly", {kPower, last}, 0), -2);
  EXPECT_FLOAT_EQ(rate("poly", {kPower, last}, 6), -2.0f / 16);
  EXPECT_FLOAT_EQ(rate("poly", {make_arg("power", 0.5f), last}, 9), 0);
}

TEST(LearningRate, WarmsUp) {
  EXPECT_FLOAT_EQ(rate("linearWarmup", {kStart, kLength}, 0, 1), 0.2f);
  EXPECT_FLOAT_EQ(rate("linearWarmup", {kStart, kLength}, 5, 1), 0.6f);
  EXPECT_FLOAT_EQ(rate("linearWarmup", {kStart, kLength}, 10, 1), 1);
  EXPECT_FLOAT_EQ(rate("linearWarmup", {kStart, kLength}, 99, 1), 1);
  EXPECT_FLOAT_EQ(rate("constantWarmup", {kLength}, 9, 1), 0.5f);
  EXPECT_FLOAT_EQ(rate("constantWarmup", {kLength, make_arg("multiplier", 0.1f)}, 9, 1), 0.1f);
  EXPECT_FLOAT_EQ(rate("constantWarmup", {kLength}, 10, 1), 1);
}

TEST(LearningRate, Alternates) {
  const Argument on = make_arg("active_period", 2), off = make_arg("inactive_period", 3);
  const float first[] = {1, 1, 0, 0, 0, 1, 1};
  const float last[] = {0, 0, 0, 1, 1, 0, 0};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(rate("alter", {on, off}, i, 1), first[i]) << i;
    EXPECT_EQ(rate("alter", {on, off, make_arg("active_first", 0)}, i, 1), last[i]) << i;
  }
}

TEST(LearningRate, Hill) {
  const std::vector<Argument> args = {kStart, kLength, kGamma, kPower, make_arg("end_multiplier", 0.01f)};
  EXPECT_FLOAT_EQ(rate("hill", args, 5, 1), 0.6f);
  EXPECT_FLOAT_EQ(rate("hill", args, 10, 1), 1);
  EXPECT_FLOAT_EQ(rate("hill", args, 12, 1), 0.25f);
  EXPECT_FLOAT_EQ(rate("hill", args, 1000, 1), 0.01f);
}

TEST(LearningRate, RefusesBadPolicies) {
  EXPECT_NE(error_of([] { rate("stpe", {}, 0); })
                .find("there is no policy \"stpe\"; there are fixed, step, exp, inv, poly, linearWarmup, "
                      "constantWarmup, alter, hill. Did you mean \"step\"?"),
            std::string::npos);
  EXPECT_NE(
      error_of([] { rate("step", {make_arg("stepsize", 3)}, 0); }).find("policy \"step\" needs the argument \"gamma\""),
      std::string::npos);
  EXPECT_NE(error_of([] { rate("step", {kGamma}, 0); }).find("needs the argument \"stepsize\""), std::string::npos);
  EXPECT_NE(error_of([] {
              rate("step", {kGamma, make_arg("stepsize", 0)}, 0);
            }).find("argument \"stepsize\" must be greater than 0, but is 0"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              rate("hill", {kStart, kLength, kGamma}, 0);
            }).find("needs the argument \"power\""),
            std::string::npos);
  EXPECT_NE(error_of([] { rate("fixed", {}, -1); }).find("iter is -1, which is negative"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::learning_rate_test
