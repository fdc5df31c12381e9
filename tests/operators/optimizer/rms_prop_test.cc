#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::rms_prop_test {
namespace {

OptimizerSteps rms_prop(const Shape& shape) {
  return {make_op("RmsProp", {"g", "ms", "mom", "lr"}, {"g", "ms", "mom"},
                  {make_arg("decay", 0.75f), make_arg("momentum", 0.5f), make_arg("epsilon", 0.25f)}),
          {{"g", Tensor::zeros(DType::float64, shape)},
           {"ms", uniform<double>(shape, 0, 2, 1)},
           {"mom", normal<double>(shape, 2)},
           {"lr", Tensor::scalar<float>(-0.125f)}},
          {"g", "ms", "mom"},
          shape.size(),
          [](int, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
            for (size_t i = 0; i < grad.size(); ++i) {
              double& ms = states["ms"][i];
              double& mom = states["mom"][i];
              ms = 0.75 * ms + 0.25 * grad[i] * grad[i];
              mom = 0.5 * mom - 0.125 * grad[i] / std::sqrt(0.25 + ms);
              states["g"][i] = mom;
            }
          }};
}

TEST(RmsProp, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{1}, Shape{100000}})
    EXPECT_EQ(check_dense_steps(rms_prop(shape), shape), "");
}

TEST(RmsProp, HasDefaults) {
  const Feeds feeds = {{"g", Tensor::of<double>({1}, {1})},
                       {"ms", Tensor::of<double>({1}, {1})},
                       {"mom", Tensor::of<double>({1}, {100})},
                       {"lr", Tensor::scalar<double>(1)}};
  const auto out = run_op_on(make_op("RmsProp", {"g", "ms", "mom", "lr"}, {"g", "ms", "mom"}), feeds);
  EXPECT_NEAR(out[0].item<double>(), 1 / std::sqrt(1 + 1e-5), 1e-9);
  EXPECT_DOUBLE_EQ(out[1].item<double>(), 1);
  Feeds still = feeds;
  still[0].second = Tensor::of<double>({1}, {0});
  EXPECT_NEAR(run_op_on(make_op("RmsProp", {"g", "ms", "mom", "lr"}, {"g", "ms", "mom"}), still)[1].item<double>(), 0.9,
              1e-7);
}

TEST(RmsProp, RefusesWhatDoesNotFit) {
  const std::string name = "RmsProp: ";
  OptimizerSteps steps = rms_prop({6});
  EXPECT_EQ(step_error(steps, "ms", normal<double>({3, 2})), name + "mean_squares has shape [3, 2], but grad [6]");
  EXPECT_EQ(step_error(steps, "mom", normal<double>({5})), name + "mom has shape [5], but grad [6]");
  EXPECT_EQ(step_error(steps, "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  *steps.def.mutable_arg(0) = make_arg("decay", 1.0f);
  EXPECT_EQ(step_error(steps, "", Tensor()), name + "argument \"decay\" must be from 0 to less than 1, but is 1");
}

}  // namespace
}  // namespace stepnet::testing::rms_prop_test
