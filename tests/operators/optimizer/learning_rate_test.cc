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

// Rates at these iterations, as Caffe2 1.10 gives them for a base of 1.
void expect_rates(const std::string& policy, const std::vector<Argument>& args,
                  const std::vector<std::pair<int64_t, float>>& rates) {
  for (const auto& [iter, expected] : rates)
    EXPECT_FLOAT_EQ(rate(policy, args, iter, 1), expected) << policy << " at " << iter;
}

TEST(LearningRate, PoliciesOfLaterCaffe2) {
  const Argument first = make_arg("multiplier_1", 0.9F), last = make_arg("multiplier_2", 0.2F);
  expect_rates("gate", {make_arg("num_iter", 4), first, last}, {{0, 0.9F}, {3, 0.9F}, {4, 0.2F}, {25, 0.2F}});
  expect_rates("slope", {make_arg("num_iter_1", 3), make_arg("num_iter_2", 8), first, last},
               {{0, 0.9F}, {3, 0.9F}, {4, 0.76F}, {6, 0.48F}, {8, 0.2F}, {12, 0.2F}});
  expect_rates("slope", {make_arg("num_iter_1", 2), make_arg("num_iter_2", 6), make_arg("multiplier_1", 1.0F)},
               {{0, 1}, {2, 1}, {3, 0.75F}, {5, 0.25F}, {6, 0}, {7, 0}});
  expect_rates("cyclical", {make_arg("max_lr", 3.0F), make_arg("stepsize", 4), make_arg("decay", 0.5F)},
               {{0, 1}, {1, 1.5F}, {4, 3}, {7, 1.5F}, {8, 1}, {9, 1.25F}, {20, 1.5F}, {25, 1.0625F}});
  const Argument constant = make_arg("constant_warmup_num_iter", 3), linear = make_arg("linear_warmup_num_iter", 4);
  expect_rates("constantThenLinearWarmup", {constant, linear},
               {{0, 0.1F}, {3, 0.1F}, {4, 0.325F}, {6, 0.775F}, {7, 1}, {25, 1}});
  expect_rates("compositeCyclical",
               {constant, linear, make_arg("cyclical_max_lr", 3.0F), make_arg("cyclical_step_size", 4),
                make_arg("cyclical_decay", 0.5F)},
               {{0, 0.1F}, {6, 0.775F}, {7, 1}, {8, 1.5F}, {10, 2.5F}, {15, 1}, {20, 1.75F}, {25, 1.25F}});
  EXPECT_FLOAT_EQ(rate("cyclical", {make_arg("max_lr", 3.0F), make_arg("stepsize", 4)}, 4, -2), -3);
}

TEST(LearningRate, CosinesOfLaterCaffe2) {
  const Argument most = make_arg("max_lr", 0.5F), least = make_arg("min_lr", 0.1F), length = make_arg("period", 5),
                 shrink = make_arg("lr_shrink", 0.5F);
  expect_rates("cosine", {most, least, length, shrink},
               {{0, 0.5F}, {3, 0.23819661F}, {5, 0.25F}, {7, 0.18090171F}, {12, 0.090450853F}, {21, 0.028862713F}});
  expect_rates("cosine", {most, least, length, shrink, make_arg("t_mult", 2.0F)},
               {{0, 0.5F}, {3, 0.23819661F}, {5, 0.25F}, {7, 0.2309017F}, {12, 0.091221474F}, {21, 0.10438927F}});
  expect_rates("cosine", {}, {{7, 0.48096541F}});
  const Argument constant = make_arg("constant_warmup_num_iter", 2), linear = make_arg("linear_warmup_num_iter", 5);
  expect_rates("compositeCosine",
               {constant, linear, make_arg("cosine_max_lr", 0.5F), make_arg("cosine_min_lr", 0.1F),
                make_arg("cosine_period", 5), make_arg("cosine_lr_shrink", 0.5F)},
               {{0, 0.1F}, {2, 0.1F}, {3, 0.28F}, {7, 0.5F}, {8, 0.46180341F}, {12, 0.25F}});
  expect_rates("compositeCosine", {constant, linear}, {{107, 0.49005002F}});
}

TEST(LearningRate, Pieces) {
  expect_rates(
      "pieceWarmup",
      {make_arg("m1", 0.25F), make_arg("n1", 3), make_arg("m2", 0.5F), make_arg("n2", 5), make_arg("m3", 0.75F)},
      {{0, 0.25F}, {2, 0.25F}, {3, 0.5F}, {4, 0.5F}, {5, 0.75F}, {12, 0.75F}});
}

const Argument kParts = make_arg("sub_policy_num_iters", std::vector<int>{2, 3, 4});

TEST(LearningRate, Composite) {
  expect_rates("composite",
               {kParts, make_arg("sub_policy_0_policy", "exp"), make_arg("sub_policy_0_gamma", 0.5F),
                make_arg("sub_policy_0_lr_scale", 2.0F), make_arg("sub_policy_1_policy", "step"),
                make_arg("sub_policy_1_gamma", 0.5F), make_arg("sub_policy_1_stepsize", 2),
                make_arg("sub_policy_2_policy", "fixed"), make_arg("sub_policy_2_lr_scale", 0.25F)},
               {{0, 2}, {1, 1}, {2, 0.5F}, {3, 0.5F}, {5, 0.25F}, {6, 0.25F}, {9, 0.25F}, {12, 0.25F}});
}

TEST(LearningRate, RefusesWrongParts) {
  const auto error = [](const std::vector<Argument>& args) { return error_of([&] { rate("composite", args, 0); }); };
  const auto expect = [&](const std::vector<Argument>& args, const std::string& what) {
    const std::string said = error(args);
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  const Argument one = make_arg("sub_policy_num_iters", std::vector<int>{2});
  const Argument fixed = make_arg("sub_policy_0_policy", "fixed");
  expect({}, "policy \"composite\" needs the argument \"sub_policy_num_iters\"");
  expect({one}, "argument \"policy\" (string) is missing");
  expect({one, make_arg("sub_policy_0_policy", "stpe")}, "there is no policy \"stpe\"");
  expect({one, make_arg("sub_policy_0_policy", "composite")}, "a composite cannot be part of another");
  expect({one, make_arg("sub_policy_0_policy", "exp")}, "policy \"exp\" needs the argument \"gamma\"");
  expect({one, fixed, make_arg("sub_policy_1_policy", "fixed")}, "is of policy 1, but sub_policy_num_iters has 1");
  expect({one, fixed, make_arg("sub_policy_x", 1)}, "\"sub_policy_x\" is no argument of a policy");
  expect({one, fixed, make_arg("sub_policy_00_lr_scale", 1.0F)},
         "\"sub_policy_00_lr_scale\" is no argument of a policy");
  expect({one, fixed, make_arg("sub_policy_0_sub_policy_0_policy", "exp")}, "a composite cannot be part of another");
  expect({one, fixed, make_arg("sub_policy_0_gama", 1.0F)}, "LearningRate has no argument \"gama\"");
  expect({make_arg("sub_policy_num_iters", std::vector<int>{0}), fixed}, "must be greater than 0");
  expect({make_arg("sub_policy_num_iters", std::vector<int>(17, 1)), fixed}, "composite takes at most 16");
  EXPECT_NE(error_of([&] { rate("fixed", {fixed}, 0); }).find("only policy \"composite\" has \"sub_policy_0_policy\""),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { rate("cosine", {make_arg("t_mult", 0.5F)}, 0); }).find("\"t_mult\" must be finite and at least 1"),
      std::string::npos);
  EXPECT_NE(error_of([&] { rate("cosine", {make_arg("period", 0)}, 0); }).find("\"period\" must be greater than 0"),
            std::string::npos);
}

TEST(LearningRate, RefusesCyclesOfNothing) {
  const auto error = [](const std::string& policy, const std::vector<Argument>& args, float base = 1) {
    return error_of([&] { rate(policy, args, 0, base); });
  };
  EXPECT_NE(error("cyclical", {}).find("policy \"cyclical\" needs the argument \"stepsize\""), std::string::npos);
  EXPECT_NE(error("cyclical", {make_arg("stepsize", 0)}).find("\"stepsize\" must be greater than 0"),
            std::string::npos);
  EXPECT_NE(error("cyclical", {make_arg("stepsize", 4)}, 0).find("\"base_lr\" must not be 0"), std::string::npos);
  EXPECT_NE(error("slope", {}).find("\"num_iter_2\" must be greater than num_iter_1, but they are 0 and 0"),
            std::string::npos);
}

TEST(LearningRate, RefusesBadPolicies) {
  EXPECT_NE(error_of([] { rate("stpe", {}, 0); })
                .find("there is no policy \"stpe\"; there are fixed, step, exp, inv, poly, linearWarmup, "
                      "constantWarmup, alter, hill, gate, slope, cyclical, constantThenLinearWarmup, "
                      "compositeCyclical, cosine, compositeCosine, pieceWarmup, composite. Did you mean \"slope\" or "
                      "\"step\"?"),
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
