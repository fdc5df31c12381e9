#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::sparse_adagrad_test {
namespace {

void naive(int, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const size_t e = static_cast<size_t>(at) * grad.size() + i;
    const double h = states["h"][e] += grad[i] * grad[i];
    states["p"][e] -= 0.5 * grad[i] / (std::sqrt(h) + 0.25);
  }
}

OptimizerSteps adagrad(const Shape& table = {5, 3, 2}) {
  return {make_op("SparseAdagrad", {"p", "h", "i", "g", "lr"}, {"p", "h"}, {make_arg("epsilon", 0.25f)}),
          {{"p", normal<double>(table, 1)},
           {"h", uniform<double>(table, 0, 2, 2)},
           {"lr", Tensor::of<float>({1, 1}, {-0.5f})}},
          {"p", "h"},
          table.size_between(1, table.rank()),
          naive};
}

TEST(SparseAdagrad, StepsRowAfterRow) {
  EXPECT_EQ(check_table_steps(adagrad()), "");
  EXPECT_EQ(check_table_steps(adagrad({5})), "");
  EXPECT_EQ(check_table_steps(adagrad({5, 0})), "");
  EXPECT_EQ(check_table_threads(adagrad({70, 64}), {70, 64}), "");
}

TEST(SparseAdagrad, HasTheDenseDefault) {
  const Feeds feeds = {{"p", Tensor::of<double>({1}, {0})},
                       {"h", Tensor::of<double>({1}, {0})},
                       {"i", Tensor::of<int32_t>({1}, {0})},
                       {"g", Tensor::of<double>({1}, {1e-5})},
                       {"lr", Tensor::scalar<double>(-1)}};
  const auto out = run_op_on(make_op("SparseAdagrad", {"p", "h", "i", "g", "lr"}, {"p", "h"}), feeds);
  EXPECT_NEAR(out[0].item<double>(), -0.5, 1e-6);  // 1e-5 / (1e-5 + epsilon)
}

TEST(SparseAdagrad, RefusesWhatDoesNotFit) {
  const std::string name = "SparseAdagrad: ";
  EXPECT_EQ(step_error(adagrad(), "i", Tensor::of<int32_t>({2}, {0, 5})),
            name + "index 1 is 5, which is outside of 0 to 4");
  EXPECT_EQ(step_error(adagrad(), "i", Tensor::of<int64_t>({2}, {0, -1})),
            name + "index 1 is -1, which is outside of 0 to 4");
  EXPECT_EQ(step_error(adagrad(), "g", normal<double>({6, 2})),
            name + "grad has shape [6, 2], but for indices [2] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(adagrad(), "h", normal<double>({5})), name + "moment has shape [5], but param [5, 3, 2]");
  EXPECT_EQ(step_error(adagrad(), "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  OptimizerSteps scalar = adagrad();
  scalar.feeds[0].second = scalar.feeds[1].second = Tensor::scalar<double>(1);
  EXPECT_EQ(step_error(scalar, "", Tensor()), name + "param is a single value, which has no rows");
  OptimizerSteps apart = adagrad();
  apart.def.set_output(0, "other");
  EXPECT_NE(step_error(apart, "", Tensor()).find("\"output_param\" must be the same blob as input \"param\""),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sparse_adagrad_test
