#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::row_wise_sparse_adagrad_test {
namespace {

void naive(int, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
  double sum = 0;
  for (const double g : grad) sum += g * g / static_cast<double>(grad.size());
  const double h = states["h"][static_cast<size_t>(at)] += sum;
  for (size_t i = 0; i < grad.size(); ++i)
    states["p"][static_cast<size_t>(at) * grad.size() + i] -= 0.5 * grad[i] / (std::sqrt(h) + 0.25);
}

OptimizerSteps adagrad(const Shape& table = {5, 3, 2}) {
  return {make_op("RowWiseSparseAdagrad", {"p", "h", "i", "g", "lr"}, {"p", "h"}, {make_arg("epsilon", 0.25f)}),
          {{"p", normal<double>(table, 1)},
           {"h", uniform<double>({table[0]}, 0.5, 2, 2)},
           {"lr", Tensor::scalar<float>(-0.5f)}},
          {"p", "h"},
          table.size_between(1, table.rank()),
          naive};
}

TEST(RowWiseSparseAdagrad, StepsRowAfterRow) {
  EXPECT_EQ(check_table_steps(adagrad()), "");
  EXPECT_EQ(check_table_steps(adagrad({5})), "");
  EXPECT_EQ(check_table_steps(adagrad({5, 0})), "");
  EXPECT_EQ(check_table_threads(adagrad({70, 64}), {70, 64}), "");
}

TEST(RowWiseSparseAdagrad, RefusesWhatDoesNotFit) {
  const std::string name = "RowWiseSparseAdagrad: ";
  EXPECT_EQ(step_error(adagrad(), "i", Tensor::of<int64_t>({2}, {0, 5})),
            name + "index 1 is 5, which is outside of 0 to 4");
  EXPECT_EQ(step_error(adagrad(), "i", Tensor::of<int32_t>({2}, {-2147483647, 0})),
            name + "index 0 is -2147483647, which is outside of 0 to 4");
  EXPECT_EQ(step_error(adagrad(), "h", normal<double>({5, 3, 2})),
            name + "moment has shape [5, 3, 2], but param [5, 3, 2] needs one value for each row");
  EXPECT_EQ(step_error(adagrad(), "g", normal<double>({2, 2})),
            name + "grad has shape [2, 2], but for indices [2] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(adagrad(), "lr", normal<float>({0})), name + "lr must be one value, but has shape [0]");
  OptimizerSteps apart = adagrad();
  apart.def.set_output(1, "other");
  EXPECT_NE(step_error(apart, "", Tensor()).find("\"output_moment_1\" must be the same blob as input \"moment\""),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::row_wise_sparse_adagrad_test
