#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::scatter_weighted_sum_test {
namespace {

// X_0 = w_0 X_0 + w_1 g, where all rows are scaled before any is added: with one occurrence of each index that is one
// row after the other.
OptimizerSteps scatter(float first, const Shape& table = {5, 3, 2}) {
  return {make_op("ScatterWeightedSum", {"p", "w0", "i", "g", "w1"}, {"p"}),
          {{"p", normal<double>(table, 1)},
           {"w0", Tensor::scalar<float>(first)},
           {"w1", Tensor::of<double>({1, 1}, {-0.125})}},
          {"p"},
          table.size_between(1, table.rank()),
          [](int, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
            for (size_t i = 0; i < grad.size(); ++i)
              states["p"][static_cast<size_t>(at) * grad.size() + i] -= 0.125 * grad[i];
          }};
}

TEST(ScatterWeightedSum, AddsRowAfterRow) {
  EXPECT_EQ(check_table_steps(scatter(1)), "");
  EXPECT_EQ(check_table_steps(scatter(1, {5})), "");
  EXPECT_EQ(check_table_steps(scatter(1, {5, 0})), "");
  EXPECT_EQ(check_table_threads(scatter(1, {70, 64}), {70, 64}), "");
}

TEST(ScatterWeightedSum, ScalesOnceForEachOccurrence) {
  const Feeds feeds = {{"X", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                       {"w0", Tensor::scalar<float>(0.5f)},
                       {"I", Tensor::of<int32_t>({3}, {2, 0, 2})},
                       {"A", normal<float>({3, 2}, 1)},
                       {"wA", Tensor::of<float>({1}, {2})},
                       {"B", normal<float>({6}, 2)},
                       {"wB", Tensor::of<double>({1}, {-3})}};
  const auto out = run_op_on(make_op("ScatterWeightedSum", {"X", "w0", "I", "A", "wA", "B", "wB"}, {"X"}), feeds)[0];
  Tensor expected = Tensor::of<float>({3, 2}, {0.5f, 1, 3, 4, 1.25f, 1.5f});
  const int64_t rows[] = {2, 0, 2};
  for (int k = 0; k < 3; ++k)
    for (int64_t c = 0; c < 2; ++c)
      expected.data<float>()[rows[k] * 2 + c] +=
          2 * feeds[3].second.data<float>()[k * 2 + c] - 3 * feeds[5].second.data<float>()[k * 2 + c];
  EXPECT_EQ(compare(out, expected, 1e-6), "");
}

TEST(ScatterWeightedSum, ScalesByThreadsAlike) {
  Tensor indices = Tensor::empty(DType::int64, {4000});
  for (int64_t k = 0; k < 4000; ++k) indices.data<int64_t>()[k] = k % 2000;
  const Feeds feeds = {{"X", normal<double>({2000, 32}, 1)},
                       {"w0", Tensor::scalar<double>(0.5)},
                       {"I", indices},
                       {"A", normal<double>({4000, 32}, 2)},
                       {"w", Tensor::scalar<double>(2)}};
  const auto out = run_op_on(make_op("ScatterWeightedSum", {"X", "w0", "I", "A", "w"}, {"X"}), feeds)[0];
  Tensor expected = feeds[0].second.clone();
  const double* a = feeds[3].second.data<double>();
  for (int64_t i = 0; i < 2000 * 32; ++i)
    expected.data<double>()[i] = 0.25 * expected.data<double>()[i] + 2 * (a[i] + a[i + 2000 * 32]);
  EXPECT_EQ(compare(out, expected, 1e-13), "");
}

TEST(ScatterWeightedSum, RefusesWhatDoesNotFit) {
  const std::string name = "ScatterWeightedSum: ";
  EXPECT_EQ(step_error(scatter(0.5f), "i", Tensor::of<int64_t>({2}, {0, 5})),
            name + "index 1 is 5, which is outside of 0 to 4");
  EXPECT_EQ(step_error(scatter(0.5f), "i", Tensor::of<int32_t>({2}, {0, -1})),
            name + "index 1 is -1, which is outside of 0 to 4");
  EXPECT_EQ(step_error(scatter(1), "g", normal<double>({2, 3})),
            name + "tensor 1 is double[2, 3] with 6 elements, but there are 2 indices of rows of 6");
  EXPECT_EQ(step_error(scatter(1), "g", normal<float>({2, 6})),
            name + "tensor 1 must be double as X_0 is, but is float");
  EXPECT_EQ(step_error(scatter(1), "w0", normal<float>({2})), name + "weight 0 must be one value, but has shape [2]");
  EXPECT_EQ(step_error(scatter(1), "w1", normal<float>({2})), name + "weight 1 must be one value, but has shape [2]");
  EXPECT_EQ(step_error(scatter(1), "w1", Tensor::scalar<int32_t>(1)),
            name + "weight 1 must be float or double, but is int32");
  EXPECT_EQ(step_error(scatter(1), "p", Tensor::scalar<double>(1)), name + "X_0 is a single value, which has no rows");
  OptimizerSteps even = scatter(1);
  even.def.add_input("g");
  EXPECT_EQ(step_error(even, "", Tensor()),
            name + "after INDICES tensors and weights alternate, but there are 6 inputs");
  OptimizerSteps apart = scatter(1);
  apart.def.set_output(0, "other");
  EXPECT_NE(step_error(apart, "", Tensor()).find("\"output\" must be the same blob as input \"X_0\""),
            std::string::npos);
  OptimizerSteps itself = scatter(1);
  itself.def.set_input(3, "p");
  EXPECT_NE(step_error(itself, "", Tensor()).find("cannot have the name of the input"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::scatter_weighted_sum_test
