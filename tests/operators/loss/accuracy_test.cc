// Accuracy: rows whose label is among the greatest scores.
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::accuracy_test {
namespace {

float accuracy(const Tensor& x, const Tensor& label, int64_t top_k = 1) {
  OperatorDef def = make_op("Accuracy", {"X", "label"}, {"Y"});
  *def.add_arg() = make_arg("top_k", top_k);
  const Tensor y = run_op_on(def, {{"X", x}, {"label", label}})[0];
  EXPECT_EQ(y.shape(), Shape{});
  return y.item<float>();
}

TEST(Accuracy, CountsLabelsAmongTheGreatest) {
  const Tensor x = Tensor::of<float>({3, 4}, {1, 4, 3, 2, 9, 8, 7, 6, 0, 1, 2, 3});
  const Tensor label = Tensor::of<int32_t>({3}, {2, 0, 0});
  EXPECT_FLOAT_EQ(accuracy(x, label), 1.0F / 3);
  EXPECT_FLOAT_EQ(accuracy(x, label, 2), 2.0F / 3);
  EXPECT_FLOAT_EQ(accuracy(x, label, 3), 2.0F / 3);
  EXPECT_FLOAT_EQ(accuracy(x, label, 4), 1);
  EXPECT_FLOAT_EQ(accuracy(x, label, 100), 1);
  EXPECT_FLOAT_EQ(accuracy(Tensor::of<double>({1, 2}, {0.5, 0.4}), Tensor::of<int64_t>({1, 1}, {0})), 1);
}

TEST(Accuracy, OfEqualScoresTheFirstCounts) {
  const Tensor x = Tensor::of<float>({2, 3}, {5, 5, 1, 5, 5, 5});
  EXPECT_FLOAT_EQ(accuracy(x, Tensor::of<int32_t>({2}, {0, 0})), 1);
  EXPECT_FLOAT_EQ(accuracy(x, Tensor::of<int32_t>({2}, {1, 2})), 0);
  EXPECT_FLOAT_EQ(accuracy(x, Tensor::of<int32_t>({2}, {1, 2}), 2), 0.5);
}

TEST(Accuracy, OfNoRowsAndOfOneClass) {
  EXPECT_FLOAT_EQ(accuracy(normal<float>({0, 3}), Tensor::zeros(DType::int32, {0})), 0);
  EXPECT_FLOAT_EQ(accuracy(normal<float>({5, 1}), Tensor::zeros(DType::int32, {5})), 1);
}

TEST(Accuracy, MistakesAreRefused) {
  const auto error = [](const Tensor& x, const Tensor& label, int64_t top_k = 1) {
    return error_of([&] { accuracy(x, label, top_k); });
  };
  const Tensor x = normal<float>({2, 3});
  EXPECT_NE(error(x, Tensor::of<int32_t>({2}, {0, 3})).find("the label of row 1 is 3, but must be in 0..2"),
            std::string::npos);
  EXPECT_NE(error(x, Tensor::of<int32_t>({3}, {0, 0, 0})).find("label must be [2] or [2, 1], but is [3]"),
            std::string::npos);
  EXPECT_NE(error(normal<float>({6}), Tensor::of<int32_t>({1}, {0})).find("[N, D], but is [6]"), std::string::npos);
  EXPECT_NE(error(x, Tensor::of<int32_t>({2}, {0, 0}), 0).find("must be at least 1, but is 0"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::accuracy_test
