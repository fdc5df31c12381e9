// SigmoidCrossEntropyWithLogits against the formula and central differences.
#include <array>
#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::sigmoid_cross_entropy_with_logits_test {
namespace {

OperatorDef loss() { return make_op("SigmoidCrossEntropyWithLogits", {"logits", "targets"}, {"Y"}); }

Tensor naive(const Tensor& logits, const Tensor& targets, const Shape& shape) {
  Tensor y = Tensor::zeros(DType::float64, shape);
  const int64_t row = logits.size() / y.size();
  for (int64_t i = 0; i < logits.size(); ++i) {
    const double p = 1 / (1 + std::exp(-logits.data<double>()[i])), t = targets.data<double>()[i];
    y.data<double>()[i / row] -= (t * std::log(p) + (1 - t) * std::log(1 - p)) / static_cast<double>(row);
  }
  return y;
}

TEST(SigmoidCrossEntropyWithLogits, MeanOverTheLastDimension) {
  for (const Shape& shape : {Shape{2, 3, 5}, Shape{7}, Shape{3, 1}}) {
    const Tensor x = normal<double>(shape, 1, 0, 3), t = uniform<double>(shape, 0, 1);
    const Shape y(shape.dims().first(shape.rank() - 1));
    EXPECT_EQ(compare(run_op_on(loss(), {{"logits", x}, {"targets", t}})[0], naive(x, t, y), 1e-13), "") << shape.str();
  }
}

TEST(SigmoidCrossEntropyWithLogits, LargeScoresStayFinite) {
  const Tensor x = Tensor::of<float>({4, 1}, {3e38F, -3e38F, 1000, -1000}), t = Tensor::of<float>({4, 1}, {1, 0, 0, 1});
  EXPECT_EQ(
      compare(run_op_on(loss(), {{"logits", x}, {"targets", t}})[0], Tensor::of<float>({4}, {0, 0, 1000, 1000}), 1e-6),
      "");
  const OperatorDef back = make_op("SigmoidCrossEntropyWithLogitsGradient", {"dY", "logits", "targets"}, {"dlogits"});
  const Tensor dy = Tensor::of<float>({4}, {1, 1, 1, 1});
  EXPECT_EQ(compare(run_op_on(back, {{"dY", dy}, {"logits", x}, {"targets", t}})[0],
                    Tensor::of<float>({4, 1}, {0, 0, 1, -1}), 1e-6),
            "");
}

TEST(SigmoidCrossEntropyWithLogits, Gradients) {
  for (const Shape& shape : {Shape{4, 3}, Shape{1, 1}, Shape{0, 3}, Shape{3, 0}, Shape{5}, Shape{}, Shape{2, 2, 2}}) {
    const Feeds feeds = {{"logits", normal<double>(shape)}, {"targets", uniform<double>(shape, 0, 1, 2)}};
    EXPECT_EQ(check_gradient(loss(), feeds, {"logits", "targets"}), "") << shape.str();
  }
}

TEST(SigmoidCrossEntropyWithLogits, NothingHasTheMeanZero) {
  const Feeds feeds = {{"logits", normal<float>({2, 0})}, {"targets", normal<float>({2, 0})}};
  EXPECT_EQ(compare(run_op_on(loss(), feeds)[0], Tensor::zeros(DType::float32, {2}), 0), "");
}

TEST(SigmoidCrossEntropyWithLogits, BadShapesAreNamed) {
  const std::string text = error_of([] {
    run_op_on(loss(), {{"logits", normal<float>({2, 3})}, {"targets", normal<float>({2})}});
  });
  EXPECT_NE(text.find("logits is [2, 3], but targets [2]"), std::string::npos) << text;
  const std::string gradient = error_of([] {
    run_op_on(make_op("SigmoidCrossEntropyWithLogitsGradient", {"dY", "logits", "targets"}, {"dlogits"}),
              {{"dY", normal<float>({3})}, {"logits", normal<float>({2, 3})}, {"targets", normal<float>({2, 3})}});
  });
  EXPECT_NE(gradient.find("dY is [3], but logits [2, 3]"), std::string::npos) << gradient;
}

TEST(SigmoidCrossEntropyWithLogits, GradientsOfGradients) {
  const OperatorDef def =
      make_op("SigmoidCrossEntropyWithLogitsGradient", {"dY", "logits", "targets"}, {"dlogits", "dtargets"});
  for (const Shape& shape : {Shape{4, 3}, Shape{1, 1}, Shape{0, 3}, Shape{3, 0}, Shape{5}, Shape{2, 2, 2}}) {
    const Feeds feeds = {{"dY", normal<double>(Shape(shape.dims().first(shape.rank() - 1)), 3)},
                         {"logits", normal<double>(shape)},
                         {"targets", uniform<double>(shape, 0, 1, 2)}};
    EXPECT_EQ(check_gradient(def, feeds, {"dY", "logits", "targets"}), "") << shape.str();
    EXPECT_EQ(check_gradient(def, feeds, {"dY", "logits", "targets"}, 1e-7, 1e-5, {"dlogits"}), "") << shape.str();
    EXPECT_EQ(check_gradient(def, feeds, {"dY", "logits"}, 1e-7, 1e-5, {"dtargets"}), "") << shape.str();
  }
}

// What Caffe2 1.10 gives for one score and target, and the gradient of the score.
struct OtherLoss {
  const char* arg;
  std::vector<std::array<double, 4>> rows;
};
const OtherLoss kOthers[] = {
    {"log_D_trick",
     {{-2, 0, -2.126928, 0.8807971},
      {-0.5, 1, 0.974077, -0.62245935},
      {0.5, 0, -0.474077, 0.37754068},
      {2, 1, 0.12692802, -0.11920292}}},
    {"unjoined_lr_loss",
     {{-2, 0, 0.12692802, 0.11920292}, {-0.5, 1, 0.5, -1}, {0.5, 0, 0.974077, 0.62245935}, {2, 1, -2, -1}}}};

TEST(SigmoidCrossEntropyWithLogits, OtherLosses) {
  for (const OtherLoss& other : kOthers) {
    const Argument arg = make_arg(other.arg, 1);
    const OperatorDef loss = make_op("SigmoidCrossEntropyWithLogits", {"x", "t"}, {"y"}, {arg});
    const OperatorDef gradient =
        make_op("SigmoidCrossEntropyWithLogitsGradient", {"dy", "x", "t"}, {"dx", "dt"}, {arg});
    for (const auto& [x, t, y, dx] : other.rows) {
      const Feeds feeds = {{"x", Tensor::of<double>({1, 1}, {x})},
                           {"t", Tensor::of<double>({1, 1}, {t})},
                           {"dy", Tensor::of<double>({1}, {1})}};
      EXPECT_NEAR(run_op_on(loss, feeds)[0].item<double>(), y, 1e-6) << other.arg << x;
      EXPECT_NEAR(run_op_on(gradient, feeds)[0].item<double>(), dx, 1e-6) << other.arg << x;
    }
    const Feeds many = {{"x", normal<double>({3, 4}, 1, 0, 2)},
                        {"t", uniform<double>({3, 4}, 0, 1, 2)},
                        {"dy", normal<double>({3}, 3)}};
    EXPECT_EQ(check_gradient(loss, many, {"x", "t"}), "") << other.arg;
    EXPECT_EQ(check_gradient(gradient, many, {"dy", "x", "t"}), "") << other.arg;
  }
  EXPECT_NE(error_of([] {
              run_op_on(make_op("SigmoidCrossEntropyWithLogits", {"x", "t"}, {"y"},
                                {make_arg("log_D_trick", 1), make_arg("unjoined_lr_loss", 1)}),
                        {{"x", normal<float>({2, 2})}, {"t", normal<float>({2, 2})}});
            }).find("log_D_trick and unjoined_lr_loss are both set"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sigmoid_cross_entropy_with_logits_test
