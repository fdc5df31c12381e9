#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::sparse_adam_test {
namespace {

constexpr double kBeta1 = 0.75, kBeta2 = 0.5, kEpsilon = 0.25, kRate = -0.125;

void naive(int step, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
  const double correction = std::sqrt(1 - std::pow(kBeta2, step + 1)) / (1 - std::pow(kBeta1, step + 1));
  for (size_t i = 0; i < grad.size(); ++i) {
    const size_t e = static_cast<size_t>(at) * grad.size() + i;
    double& m1 = states["m1"][e];
    double& m2 = states["m2"][e];
    m1 += (1 - kBeta1) * (grad[i] - m1);
    m2 += (1 - kBeta2) * (grad[i] * grad[i] - m2);
    states["p"][e] += kRate * correction * m1 / (std::sqrt(m2) + kEpsilon);
  }
}

OptimizerSteps adam(const Shape& table = {5, 3, 2}) {
  const std::vector<Argument> args = {make_arg("beta1", 0.75f), make_arg("beta2", 0.5f), make_arg("epsilon", 0.25f)};
  return {make_op("SparseAdam", {"p", "m1", "m2", "i", "g", "lr", "iter"}, {"p", "m1", "m2"}, args),
          {{"p", normal<double>(table, 1)},
           {"m1", normal<double>(table, 2)},
           {"m2", uniform<double>(table, 0, 2, 3)},
           {"lr", Tensor::scalar<float>(-0.125f)},
           {"iter", Tensor::of<int64_t>({1}, {0})}},
          {"p", "m1", "m2"},
          table.size_between(1, table.rank()),
          naive};
}

TEST(SparseAdam, StepsRowAfterRow) {
  EXPECT_EQ(check_table_steps(adam()), "");
  EXPECT_EQ(check_table_steps(adam({5})), "");
  EXPECT_EQ(check_table_steps(adam({5, 0})), "");
  EXPECT_EQ(check_table_threads(adam({70, 64}), {70, 64}), "");
}

TEST(SparseAdam, RefusesWhatDoesNotFit) {
  const std::string name = "SparseAdam: ";
  EXPECT_EQ(step_error(adam(), "i", Tensor::of<int64_t>({2}, {0, 5})),
            name + "index 1 is 5, which is outside of 0 to 4");
  EXPECT_EQ(step_error(adam(), "i", Tensor::of<int32_t>({2}, {0, -1})),
            name + "index 1 is -1, which is outside of 0 to 4");
  EXPECT_EQ(step_error(adam(), "g", normal<double>({3, 6})),
            name + "grad has shape [3, 6], but for indices [2] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(adam(), "i", Tensor::of<int64_t>({2, 1, 1}, {0, 1})),
            name + "grad has shape [2, 6], but for indices [2, 1, 1] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(adam(), "m1", normal<double>({5, 6})), name + "moment_1 has shape [5, 6], but param [5, 3, 2]");
  EXPECT_EQ(step_error(adam(), "m2", normal<double>({5, 6})), name + "moment_2 has shape [5, 6], but param [5, 3, 2]");
  EXPECT_EQ(step_error(adam(), "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  EXPECT_EQ(step_error(adam(), "iter", integers<int64_t>({2}, 0, 1)),
            name + "iter must be one value, but has shape [2]");
  EXPECT_EQ(step_error(adam(), "iter", Tensor::scalar<int64_t>(-1)), name + "iter is -1, which is negative");
  EXPECT_NE(step_error(adam(), "g", normal<float>({2, 6})).find("must have the same type"), std::string::npos);
}

TEST(SparseAdam, IsInPlace) {
  OptimizerSteps apart = adam();
  apart.def.set_output(1, "other");
  EXPECT_NE(step_error(apart, "", Tensor()).find("\"output_moment_1\" must be the same blob as input \"moment_1\""),
            std::string::npos);
  OptimizerSteps one_moment = adam();
  one_moment.def.set_input(2, "m1");
  one_moment.def.set_output(2, "m1");
  EXPECT_EQ(step_error(one_moment, "", Tensor()), "SparseAdam: two outputs have the same name \"m1\"");
}

}  // namespace
}  // namespace stepnet::testing::sparse_adam_test
