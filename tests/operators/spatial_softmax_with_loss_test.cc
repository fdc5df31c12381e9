// SpatialSoftmaxWithLoss against plain loops and central differences.
#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::spatial_softmax_with_loss_test {
namespace {

OperatorDef loss(bool weighted, const std::vector<Argument>& args = {}) {
  const std::vector<std::string> inputs =
      weighted ? std::vector<std::string>{"X", "T", "w"} : std::vector<std::string>{"X", "T"};
  return make_op("SpatialSoftmaxWithLoss", inputs, {"P", "L"}, args);
}

struct Expected {
  Tensor p;
  double loss = 0;
};

Expected naive(const Tensor& x, const Tensor& labels, const Tensor& weights) {
  Expected e{to_double(x)};
  const int64_t d = x.dim(1), places = x.shape().size_between(2, x.rank());
  double sum = 0, total = 0;
  for (int64_t n = 0; n < x.dim(0) * places; ++n) {
    double* p = e.p.data<double>() + n / places * d * places + n % places;
    double z = 0;
    for (int64_t j = 0; j < d; ++j) z += p[j * places] = std::exp(p[j * places]);
    for (int64_t j = 0; j < d; ++j) p[j * places] /= z;
    const int32_t label = labels.data<int32_t>()[n];
    if (label < 0) continue;
    const double w = weights.defined() ? weights.data<double>()[n] : 1;
    sum -= w * std::log(p[label * places]);
    total += w;
  }
  e.loss = total != 0 ? sum / total : 0;
  return e;
}

TEST(SpatialSoftmaxWithLoss, MeanOverAllPlacesThatHaveALabel) {
  for (const Shape& shape : {Shape{2, 3, 4, 2}, Shape{2, 3, 5}, Shape{4, 3}, Shape{1, 1, 1, 1}, Shape{0, 3, 2}}) {
    const Shape places = shape.rank() == 2 ? Shape{shape[0]} : Shape{shape[0], shape.from(2).size()};
    const Tensor x = normal<double>(shape, 1), w = uniform<double>(places, 0.1, 2, 3);
    const Tensor labels = integers<int32_t>(places, -1, shape[1] - 1, 2);
    for (const bool weighted : {false, true}) {
      const Expected e = naive(x, labels, weighted ? w : Tensor());
      const Feeds feeds = {{"X", x}, {"T", labels}, {"w", w}};
      const auto y = run_op_on(loss(weighted, {make_arg("scale", 0.5F)}), feeds);
      EXPECT_EQ(compare(y[0], e.p, 1e-14), "") << shape.str();
      EXPECT_EQ(compare(y[1], Tensor::scalar(0.5 * e.loss), 1e-14), "") << shape.str();
    }
  }
}

TEST(SpatialSoftmaxWithLoss, WithoutOtherPlacesItIsSoftmaxWithLoss) {
  const Feeds feeds = {{"X", normal<float>({4, 3})}, {"T", integers<int32_t>({4}, 0, 2)}};
  const auto a = run_op_on(loss(false), feeds),
             b = run_op_on(make_op("SoftmaxWithLoss", {"X", "T"}, {"P", "L"}), feeds);
  for (const int i : {0, 1}) EXPECT_EQ(compare(a[i], b[i], 0), "");
}

TEST(SpatialSoftmaxWithLoss, NoLabelAtAllGivesZero) {
  const Feeds feeds = {{"X", normal<double>({1, 3, 2})}, {"T", Tensor::of<int32_t>({1, 2}, {-1, -1})}};
  EXPECT_EQ(run_op_on(loss(false), feeds)[1].item<double>(), 0);
  EXPECT_EQ(check_gradient(loss(false), feeds, {"X"}, 1e-7, 1e-5, {"L"}), "");
}

TEST(SpatialSoftmaxWithLoss, Gradients) {
  const Tensor x = normal<double>({2, 3, 2, 2}, 1), w = uniform<double>({2, 2, 2}, 0.5, 2, 3);
  const Tensor labels = Tensor::of<int32_t>({2, 2, 2}, {0, 1, 2, -1, 2, 2, 0, 1});
  const Feeds feeds = {{"X", x}, {"T", labels}, {"w", w}};
  EXPECT_EQ(check_gradient(loss(true, {make_arg("scale", 0.5F)}), feeds, {"X", "w"}), "");
  EXPECT_EQ(check_gradient(loss(false), {feeds[0], feeds[1]}, {"X"}), "");
  EXPECT_EQ(check_gradient(loss(false), {feeds[0], feeds[1]}, {"X"}, 1e-7, 1e-5, {"P"}), "");
  EXPECT_EQ(check_gradient(loss(false), {feeds[0], feeds[1]}, {"X"}, 1e-7, 1e-5, {"L"}), "");
}

TEST(SpatialSoftmaxWithLoss, GradientsOfGradients) {
  const Tensor labels = Tensor::of<int32_t>({2, 2}, {0, 1, -1, 2});
  const Feeds feeds = {{"X", normal<double>({2, 3, 2}, 1)},
                       {"T", labels},
                       {"w", uniform<double>({2, 2}, 0.5, 2, 3)},
                       {"P", uniform<double>({2, 3, 2}, 0, 1, 4)},
                       {"dL", Tensor::scalar(0.7)}};
  const Argument scale = make_arg("scale", 0.5F);
  const OperatorDef def = make_op("SpatialSoftmaxWithLossGradient", {"X", "T", "w", "P", "dL"}, {"dX"}, {scale});
  EXPECT_EQ(check_gradient(def, feeds, {"w", "P", "dL"}), "");
  const OperatorDef weights =
      make_op("SoftmaxLossTargetGradient", {"X", "T", "dL", "w"}, {"", "dw"}, {scale, make_arg("spatial", true)});
  EXPECT_EQ(check_gradient(weights, feeds, {"X", "dL", "w"}), "");
}

TEST(SpatialSoftmaxWithLoss, BadInputIsNamed) {
  const Tensor x = normal<float>({1, 3, 2});
  const auto error = [&](const Tensor& scores, const Tensor& t, const std::vector<Argument>& args = {}) {
    return error_of([&] { run_op_on(loss(false, args), {{"X", scores}, {"T", t}}); });
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(error(x, Tensor::of<int32_t>({2}, {0, 3})), "the label of row 1 is 3, but must be in 0..2, or -1"));
  EXPECT_TRUE(has(error(x, Tensor::of<int32_t>({2}, {0, -2})), "the label of row 1 is -2"));
  EXPECT_TRUE(has(error(x, Tensor::of<int32_t>({3}, {0, 0, 0})), "T is [3], but X [1, 3, 2] has 2 rows of 3 classes"));
  EXPECT_TRUE(has(error(normal<float>({3}), Tensor::of<int32_t>({3}, {0, 0, 0})), "X is [3], but must be [N, D, ...]"));
  EXPECT_TRUE(has(error(x, Tensor::of<int32_t>({2}, {0, 1}), {make_arg("order", "NHWC")}), "argument \"order\""));
}

}  // namespace
}  // namespace stepnet::testing::spatial_softmax_with_loss_test
