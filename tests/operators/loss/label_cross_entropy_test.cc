// LabelCrossEntropy against the formula and central differences.
#include <cmath>

#include "core/gradcheck/runs.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::label_cross_entropy_test {
namespace {

OperatorDef loss() { return make_op("LabelCrossEntropy", {"X", "label"}, {"Y"}); }

TEST(LabelCrossEntropy, TakesTheLogarithmOfTheLabelsProbability) {
  const Tensor x = uniform<double>({4, 3}, 0.1, 0.9);
  Tensor y = Tensor::zeros(DType::float64, {4});
  const int64_t labels[] = {2, 0, 1, 2};
  for (int64_t n = 0; n < 4; ++n) y.data<double>()[n] = -std::log(x.data<double>()[n * 3 + labels[n]]);
  for (const Tensor& label : {Tensor::of<int32_t>({4}, {2, 0, 1, 2}), Tensor::of<int32_t>({4, 1}, {2, 0, 1, 2}),
                              Tensor::of<int64_t>({4}, {2, 0, 1, 2})})
    EXPECT_EQ(compare(run_op_on(loss(), {{"X", x}, {"label", label}})[0], y, 1e-14), "");
}

TEST(LabelCrossEntropy, OneDimensionIsOneRowAndZeroIsBounded) {
  const Tensor x = Tensor::of<float>({2}, {0, 1}), label = Tensor::of<int32_t>({1}, {0});
  EXPECT_EQ(compare(run_op_on(loss(), {{"X", x}, {"label", label}})[0],
                    Tensor::of<float>({1}, {static_cast<float>(-std::log(1e-20))}), 1e-6),
            "");
}

TEST(LabelCrossEntropy, Gradients) {
  for (const int64_t rows : {0, 1, 4}) {
    const Feeds feeds = {{"X", uniform<double>({rows, 3}, 0.1, 0.9)}, {"label", integers<int32_t>({rows}, 0, 2)}};
    EXPECT_EQ(check_gradient(loss(), feeds, {"X"}), "") << rows;
  }
}

TEST(LabelCrossEntropy, BadInputIsNamed) {
  const Tensor x = uniform<float>({2, 3}, 0, 1);
  auto error = [&](const Tensor& label) { return error_of([&] { run_op_on(loss(), {{"X", x}, {"label", label}}); }); };
  EXPECT_NE(error(Tensor::of<int32_t>({2}, {0, 3})).find("the label of row 1 is 3, but must be in 0..2"),
            std::string::npos);
  EXPECT_NE(error(Tensor::of<int64_t>({2}, {-1, 0})).find("the label of row 0 is -1, but must be in 0..2"),
            std::string::npos);
  EXPECT_NE(error(Tensor::of<int32_t>({3}, {0, 1, 2})).find("X is [2, 3], so label must be [2] or [2, 1], but is [3]"),
            std::string::npos);
}

TEST(LabelCrossEntropy, GradientsOfGradients) {
  const OperatorDef def = make_op("LabelCrossEntropyGradient", {"X", "label", "dY"}, {"dX"});
  for (const int64_t rows : {0, 1, 4}) {
    const Feeds feeds = {{"X", uniform<double>({rows, 3}, 0.1, 0.9)},
                         {"label", integers<int32_t>({rows}, 0, 2)},
                         {"dY", normal<double>({rows}, 2)}};
    EXPECT_EQ(check_gradient(def, feeds, {"X", "dY"}), "") << rows;
  }
}

TEST(LabelCrossEntropy, WhereTheProbabilityIsBoundedItsGradientIsConstant) {
  GradientSubject subject;
  *subject.net.add_op() = make_op("LabelCrossEntropyGradient", {"X", "label", "dY"}, {"dX"});
  subject.feeds = {{"X", Tensor::of<double>({2}, {0, 1})},
                   {"label", Tensor::of<int32_t>({1}, {0})},
                   {"dY", Tensor::of<double>({1}, {1})}};
  subject.outputs = {"dX"};
  const NamedTensors given = {{"dX", Tensor::of<double>({2}, {3, 5})}};
  NamedTensors d = run_gradients(subject, given, 1, {"X", "dY"}).gradients;
  EXPECT_EQ(compare(d["X"], Tensor::zeros(DType::float64, {2}), 0), "");
  EXPECT_EQ(compare(d["dY"], Tensor::of<double>({1}, {-3e20}), 1e-12), "");
}

}  // namespace
}  // namespace stepnet::testing::label_cross_entropy_test
