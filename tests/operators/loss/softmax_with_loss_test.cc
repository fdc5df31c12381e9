// SoftmaxWithLoss against plain loops and central differences.
#include <cmath>

#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::softmax_with_loss_test {
namespace {

struct Expected {
  Tensor p;
  double loss = 0;
};

// `t` holds a distribution for each of the rows.
Expected naive(const Tensor& x, const Tensor& t, const std::vector<double>& weights, int64_t d) {
  Expected e{to_double(x)};
  double sum = 0, total = 0;
  for (size_t n = 0; n < weights.size(); ++n) {
    double* p = e.p.data<double>() + n * d;
    double z = 0;
    for (int64_t j = 0; j < d; ++j) z += std::exp(p[j]);
    for (int64_t j = 0; j < d; ++j) p[j] = std::exp(p[j]) / z;
    for (int64_t j = 0; j < d; ++j) sum -= weights[n] * t.data<double>()[n * d + j] * std::log(p[j]);
    total += weights[n];
  }
  e.loss = total != 0 ? sum / total : 0;
  return e;
}

Tensor one_hot(const Tensor& labels, int64_t d) {
  Tensor t = Tensor::zeros(DType::float64, {labels.size(), d});
  for (int64_t n = 0; n < labels.size(); ++n) t.data<double>()[n * d + labels.data<int32_t>()[n]] = 1;
  return t;
}

Tensor distributions(int64_t rows, int64_t d) {
  Tensor t = uniform<double>({rows, d}, 0.1, 1, 7);
  for (int64_t n = 0; n < rows; ++n) {
    double sum = 0;
    for (int64_t j = 0; j < d; ++j) sum += t.data<double>()[n * d + j];
    for (int64_t j = 0; j < d; ++j) t.data<double>()[n * d + j] /= sum;
  }
  return t;
}

OperatorDef loss(bool weighted, const std::vector<Argument>& args = {}) {
  return make_op("SoftmaxWithLoss",
                 weighted ? std::vector<std::string>{"X", "T", "w"} : std::vector<std::string>{"X", "T"}, {"P", "L"},
                 args);
}

TEST(SoftmaxWithLoss, MeanCrossEntropyOfLabels) {
  const Tensor x = normal<double>({5, 4}, 1), labels = integers<int32_t>({5}, 0, 3, 2);
  const Expected e = naive(x, one_hot(labels, 4), {1, 1, 1, 1, 1}, 4);
  const auto y = run_op_on(loss(false), {{"X", x}, {"T", labels}});
  EXPECT_EQ(compare(y[0], e.p, 1e-14), "");
  EXPECT_EQ(compare(y[1], Tensor::scalar(e.loss), 1e-14), "");
}

TEST(SoftmaxWithLoss, WeightsScaleAxisAndDistributions) {
  const Tensor x = normal<double>({2, 2, 3}, 1), t = distributions(4, 3);
  const Tensor w = Tensor::of<double>({4}, {1, 0, 2, 0.5});
  const Expected e = naive(x, t, {1, 0, 2, 0.5}, 3);
  const auto y = run_op_on(loss(true, {make_arg("label_prob", 1), make_arg("scale", 3.0F), make_arg("axis", 2)}),
                           {{"X", x}, {"T", t}, {"w", w}});
  EXPECT_EQ(compare(y[0], e.p, 1e-14), "");
  EXPECT_EQ(compare(y[1], Tensor::scalar(3 * e.loss), 1e-14), "");
}

TEST(SoftmaxWithLoss, ManyFloatRows) {
  const Tensor x = normal<float>({1600, 61}, 1), labels = integers<int32_t>({1600}, 0, 60, 2);
  const Expected e = naive(to_double(x), one_hot(labels, 61), std::vector<double>(1600, 1), 61);
  const auto y = run_op_on(loss(false), {{"X", x}, {"T", labels}});
  EXPECT_EQ(compare(y[0], e.p, 1e-6), "");
  EXPECT_EQ(compare(y[1], Tensor::scalar(e.loss), 1e-6), "");
}

TEST(SoftmaxWithLoss, ImpossibleLabelsHaveAFiniteLoss) {
  const Tensor x = Tensor::of<float>({1, 2}, {0, 1000}), labels = Tensor::of<int32_t>({1}, {0});
  EXPECT_EQ(compare(run_op_on(loss(false), {{"X", x}, {"T", labels}})[1], Tensor::scalar(1000.0F), 1e-6), "");
}

TEST(SoftmaxWithLoss, WeightsOfZeroAndNoRowsGiveZero) {
  const Tensor x = normal<double>({2, 3}, 1), labels = integers<int32_t>({2}, 0, 2);
  const Tensor w = Tensor::zeros(DType::float64, {2});
  EXPECT_EQ(run_op_on(loss(true), {{"X", x}, {"T", labels}, {"w", w}})[1].item<double>(), 0);
  EXPECT_EQ(check_gradient(loss(true), {{"X", x}, {"T", labels}, {"w", w}}, {"X"}, 1e-7, 1e-5, {"L"}), "");
  const Feeds none = {{"X", normal<double>({0, 3})}, {"T", integers<int32_t>({0}, 0, 2)}};
  EXPECT_EQ(run_op_on(loss(false), none)[1].item<double>(), 0);
  EXPECT_EQ(check_gradient(loss(false), none, {"X"}, 1e-7, 1e-5, {"L"}), "");
}

TEST(SoftmaxWithLoss, Gradients) {
  const Tensor x = normal<double>({4, 3}, 1), w = uniform<double>({4}, 0.1, 2, 5);
  const Tensor labels = integers<int32_t>({4}, 0, 2, 2), t = distributions(4, 3);
  const Argument scale = make_arg("scale", 0.5F), prob = make_arg("label_prob", 1);
  auto check = [](const OperatorDef& def, const Feeds& feeds) {
    return check_gradient(def, feeds, {"X"}, 1e-7, 1e-5, {"L"});
  };
  EXPECT_EQ(check(loss(false), {{"X", x}, {"T", labels}}), "");
  EXPECT_EQ(check(loss(true, {scale, make_arg("only_loss", 1)}), {{"X", x}, {"T", labels}, {"w", w}}), "");
  EXPECT_EQ(check(loss(false, {prob, scale}), {{"X", x}, {"T", t}}), "");
  EXPECT_EQ(check(loss(true, {prob}), {{"X", x}, {"T", t}, {"w", w}}), "");
  EXPECT_EQ(check(loss(false, {make_arg("axis", 2)}), {{"X", x.reshaped({2, 2, 3})}, {"T", labels}}), "");
}

TEST(SoftmaxWithLoss, GradientsThroughTheSoftmaxAndOfTargetsAndWeights) {
  const Tensor x = normal<double>({4, 3}, 1), w = uniform<double>({4}, 0.5, 2, 5), t = distributions(4, 3);
  const Feeds labels = {{"X", x}, {"T", integers<int32_t>({4}, 0, 2, 2)}, {"w", w}};
  const Argument prob = make_arg("label_prob", 1), scale = make_arg("scale", 0.5F);
  EXPECT_EQ(check_gradient(loss(true, {scale}), labels, {"X", "w"}), "");
  EXPECT_EQ(check_gradient(loss(true), labels, {"X"}, 1e-7, 1e-5, {"P"}), "");
  EXPECT_EQ(check_gradient(loss(true, {prob, scale}), {{"X", x}, {"T", t}, {"w", w}}, {"X", "T", "w"}), "");
  EXPECT_EQ(
      check_gradient(loss(false, {prob, make_arg("axis", 2)}), {{"X", x.reshaped({2, 2, 3})}, {"T", t}}, {"X", "T"}),
      "");
  const Tensor none = Tensor::zeros(DType::float64, {4});
  const Feeds unweighted = {{"X", x}, {"T", labels[1].second}, {"one", Tensor::scalar(1.0)}, {"w", none}};
  const OperatorDef of_weights = make_op("SoftmaxLossTargetGradient", {"X", "T", "one", "w"}, {"", "dw"});
  EXPECT_EQ(compare(run_op_on(of_weights, unweighted)[1], none, 0), "");
}

TEST(SoftmaxWithLoss, GradientsOfGradients) {
  const Tensor x = normal<double>({4, 3}, 1), p = uniform<double>({4, 3}, 0, 1, 2), w = uniform<double>({4}, 1, 2, 3);
  const Tensor labels = integers<int32_t>({4}, 0, 2, 4), t = distributions(4, 3), dloss = Tensor::scalar(0.7);
  const std::vector<std::string> inputs = {"X", "T", "w", "P", "dL"}, target = {"X", "T", "dL", "w"};
  const Argument prob = make_arg("label_prob", 1), scale = make_arg("scale", 0.5F);
  const OperatorDef of_labels = make_op("SoftmaxWithLossGradient", inputs, {"dX"}, {scale});
  const OperatorDef of_shares = make_op("SoftmaxWithLossGradient", inputs, {"dX"}, {scale, prob});
  const Feeds with_labels = {{"X", x}, {"T", labels}, {"w", w}, {"P", p}, {"dL", dloss}};
  const Feeds with_shares = {{"X", x}, {"T", t}, {"w", w}, {"P", p}, {"dL", dloss}};
  EXPECT_EQ(check_gradient(of_labels, with_labels, {"w", "P", "dL"}), "");
  EXPECT_EQ(check_gradient(of_shares, with_shares, {"T", "w", "P", "dL"}), "");
  const OperatorDef unweighted = make_op("SoftmaxWithLossGradient", {"X", "T", "P", "dL"}, {"dX"}, {prob});
  EXPECT_EQ(check_gradient(unweighted, with_shares, {"T", "P", "dL"}), "");
  const OperatorDef of_weights = make_op("SoftmaxLossTargetGradient", target, {"", "dw"}, {scale});
  EXPECT_EQ(check_gradient(of_weights, with_labels, {"X", "dL", "w"}), "");
  const OperatorDef of_both = make_op("SoftmaxLossTargetGradient", target, {"dT", "dw"}, {scale, prob});
  EXPECT_EQ(check_gradient(of_both, with_shares, {"X", "T", "dL", "w"}), "");
  EXPECT_EQ(check_gradient(of_both, with_shares, {"X", "dL", "w"}, 1e-7, 1e-5, {"dT"}), "");
}

// Of distributions, which may have a gradient, P is made from X again; and they are read for dX and dw alone.
TEST(SoftmaxWithLoss, GradientsReadEitherTheScoresOrTheProbabilities) {
  const Argument prob = make_arg("label_prob", 1);
  EXPECT_EQ(gradient_reads(loss(true), "X"), "T w P");
  EXPECT_EQ(gradient_reads(loss(true, {prob}), "X"), "X T w");
  EXPECT_EQ(gradient_reads(loss(true, {prob}), "T"), "X w");
  EXPECT_EQ(gradient_reads(loss(true, {prob}), "w"), "X T w");
  const Tensor x = normal<double>({4, 3}, 1), t = distributions(4, 3), dloss = Tensor::scalar(0.7);
  const OperatorDef target = make_op("SoftmaxLossTargetGradient", {"X", "T", "dL"}, {"dT"}, {prob});
  const Tensor d = run_op_on(target, {{"X", x}, {"T", t}, {"dL", dloss}})[0];
  const Tensor other = run_op_on(target, {{"X", x}, {"T", distributions(4, 3).reshaped({3, 4})}, {"dL", dloss}})[0];
  EXPECT_EQ(compare(other.reshaped({4, 3}), d, 0), "");
  const Feeds feeds = {{"X", normal<float>({40, 33})}, {"T", integers<int32_t>({40}, 0, 32, 2)}};
  EXPECT_EQ(compare(run_op_on(make_op("Softmax", {"X"}, {"P"}), feeds)[0], run_op_on(loss(false), feeds)[0], 0), "");
}

TEST(SoftmaxWithLoss, BadInputIsNamed) {
  const Tensor x = normal<float>({2, 3});
  auto error = [&](const Tensor& t, const std::vector<Argument>& args = {}) {
    return error_of([&] { run_op_on(loss(false, args), {{"X", x}, {"T", t}}); });
  };
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(error(Tensor::of<int32_t>({2}, {0, 3})), "the label of row 1 is 3, but must be in 0..2"));
  EXPECT_TRUE(has(error(Tensor::of<int32_t>({3}, {0, 1, 1})),
                  "T is [3], but X [2, 3] has 2 rows of 3 classes, which need 2 values"));
  EXPECT_TRUE(has(error(normal<float>({2})), "T must be int32 or int64 labels, but is float[2]"));
  const Argument prob = make_arg("label_prob", 1);
  EXPECT_TRUE(has(error(Tensor::of<float>({2, 3}, {1, 0, 0, 0, 0.5F, 0}), {prob}), "row 1 of T sums to 0.5"));
  EXPECT_TRUE(has(error(Tensor::of<float>({2, 3}, {1, 0, 0, 2, -1, 0}), {prob}), "T[1, 1] is -1"));
}

}  // namespace
}  // namespace stepnet::testing::softmax_with_loss_test
