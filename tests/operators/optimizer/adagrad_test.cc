#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::adagrad_test {
namespace {

OptimizerSteps adagrad(const Shape& shape, double decay) {
  return {
      make_op("Adagrad", {"p", "h", "g", "lr"}, {"p", "h"},
              {make_arg("epsilon", 0.25f), make_arg("decay", static_cast<float>(decay))}),
      {{"p", normal<double>(shape, 1)}, {"h", uniform<double>(shape, 0, 2, 2)}, {"lr", Tensor::scalar<float>(-0.5f)}},
      {"p", "h"},
      shape.size(),
      [decay](int, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
        for (size_t i = 0; i < grad.size(); ++i) {
          const double h = states["h"][i] = decay * states["h"][i] + grad[i] * grad[i];
          states["p"][i] -= 0.5 * grad[i] / (std::sqrt(h) + 0.25);
        }
      }};
}

TEST(Adagrad, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{}, Shape{100000}})
    for (const double decay : {1.0, 0.5}) EXPECT_EQ(check_dense_steps(adagrad(shape, decay), shape), "");
}

TEST(Adagrad, HasDefaults) {
  const Feeds feeds = {{"p", Tensor::of<double>({1}, {1})},
                       {"h", Tensor::of<double>({1}, {3e-10})},
                       {"g", Tensor::of<double>({1}, {1e-5})},
                       {"lr", Tensor::of<double>({1}, {-1})}};
  const auto out = run_op_on(make_op("Adagrad", {"p", "h", "g", "lr"}, {"p", "h"}), feeds);
  EXPECT_NEAR(out[0].item<double>(), 1 - 1.0 / 3, 1e-6);  // 1e-5 / (2e-5 + epsilon)
  EXPECT_NEAR(out[1].item<double>(), 4e-10, 1e-20);
}

TEST(Adagrad, RefusesWhatDoesNotFit) {
  const std::string name = "Adagrad: ";
  const OptimizerSteps steps = adagrad({6}, 1);
  EXPECT_EQ(step_error(steps, "g", normal<double>({3, 2})), name + "grad has shape [3, 2], but param [6]");
  EXPECT_EQ(step_error(steps, "h", normal<double>({1})), name + "moment has shape [1], but param [6]");
  EXPECT_EQ(step_error(steps, "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  EXPECT_NE(step_error(steps, "h", normal<float>({6})).find("must have the same type"), std::string::npos);
  EXPECT_EQ(step_error(adagrad({6}, 1.5), "", Tensor()), name + "argument \"decay\" must be from 0 to 1, but is 1.5");
  OptimizerSteps swapped = steps;
  swapped.def.set_output(0, "h");
  swapped.def.set_output(1, "p");
  EXPECT_NE(step_error(swapped, "", Tensor()).find("cannot have the name of the input"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::adagrad_test
