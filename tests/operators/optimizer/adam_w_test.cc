#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::adam_w_test {
namespace {

// Loshchilov and Hutter's algorithm 2 as they write it, with bias-corrected moments: eps / sqrt(1 - beta2^t) in place
// of eps makes the two forms of Adam's step equal.
OptimizerSteps adam_w(const Shape& shape, double decay) {
  return {make_op("AdamW", {"p", "m1", "m2", "g", "lr", "iter"}, {"p", "m1", "m2"},
                  {make_arg("beta1", 0.75f), make_arg("beta2", 0.5f), make_arg("epsilon", 0.25f),
                   make_arg("weight_decay", static_cast<float>(decay))}),
          {{"p", normal<double>(shape, 1)},
           {"m1", normal<double>(shape, 2)},
           {"m2", uniform<double>(shape, 0, 2, 3)},
           {"lr", Tensor::scalar<float>(-0.125f)},
           {"iter", Tensor::of<int64_t>({1}, {0})}},
          {"p", "m1", "m2"},
          shape.size(),
          [decay](int step, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
            const double c1 = 1 - std::pow(0.75, step + 1), c2 = 1 - std::pow(0.5, step + 1);
            for (size_t i = 0; i < grad.size(); ++i) {
              double& m1 = states["m1"][i];
              double& m2 = states["m2"][i];
              m1 = 0.75 * m1 + 0.25 * grad[i];
              m2 = 0.5 * m2 + 0.5 * grad[i] * grad[i];
              const double before = states["p"][i];
              states["p"][i] =
                  before - 0.125 * decay * before - 0.125 * (m1 / c1) / (std::sqrt(m2 / c2) + 0.25 / std::sqrt(c2));
            }
          }};
}

TEST(AdamW, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{1}, Shape{100000}})
    for (const double decay : {0.5, 0.0}) EXPECT_EQ(check_dense_steps(adam_w(shape, decay), shape), "");
}

TEST(AdamW, WithoutDecayIsAdam) {
  OptimizerSteps adam = adam_w({3, 4}, 0);
  adam.def.set_type("Adam");
  adam.def.mutable_arg()->RemoveLast();
  EXPECT_EQ(check_dense_steps(adam, {3, 4}), "");
}

TEST(AdamW, DecaysByOneHundredthUnlessToldOtherwise) {
  const Feeds feeds = {{"p", Tensor::of<double>({1}, {2})},    {"m1", Tensor::of<double>({1}, {0})},
                       {"m2", Tensor::of<double>({1}, {1})},   {"g", Tensor::of<double>({1}, {0})},
                       {"lr", Tensor::scalar<double>(-0.125)}, {"iter", Tensor::scalar<int32_t>(0)}};
  const auto out = run_op_on(make_op("AdamW", {"p", "m1", "m2", "g", "lr", "iter"}, {"p", "m1", "m2"}), feeds);
  EXPECT_NEAR(out[0].item<double>(), 2 * (1 - 0.125 * 0.01), 1e-9);
}

TEST(AdamW, RefusesWhatDoesNotFit) {
  const std::string name = "AdamW: ";
  const OptimizerSteps steps = adam_w({6}, 0.5);
  EXPECT_EQ(step_error(steps, "g", normal<double>({3, 2})), name + "grad has shape [3, 2], but param [6]");
  EXPECT_EQ(step_error(steps, "m1", normal<double>({5})), name + "moment_1 has shape [5], but param [6]");
  EXPECT_EQ(step_error(steps, "m2", normal<double>({5})), name + "moment_2 has shape [5], but param [6]");
  EXPECT_EQ(step_error(steps, "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  EXPECT_EQ(step_error(steps, "iter", Tensor::scalar<int64_t>(-1)), name + "iter is -1, which is negative");
  EXPECT_EQ(step_error(adam_w({6}, -1), "", Tensor()),
            name + "argument \"weight_decay\" must be at least 0, but is -1");
}

}  // namespace
}  // namespace stepnet::testing::adam_w_test
