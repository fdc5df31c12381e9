// LogSoftmax against plain loops and central differences.
#include <cmath>

#include "tests/operators/norm/one_axis_check.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::log_softmax_test {
namespace {

Tensor naive(const Tensor& x, int64_t row) {
  Tensor y = to_double(x);
  for (int64_t at = 0; at < y.size(); at += row) {
    double* p = y.data<double>() + at;
    double most = p[0], sum = 0;
    for (int64_t j = 0; j < row; ++j) most = std::max(most, p[j]);
    for (int64_t j = 0; j < row; ++j) sum += std::exp(p[j] - most);
    for (int64_t j = 0; j < row; ++j) p[j] -= most + std::log(sum);
  }
  return y;
}

OperatorDef log_softmax(int axis) { return make_op("LogSoftmax", {"X"}, {"Y"}, {make_arg("axis", axis)}); }

TEST(LogSoftmax, NormalisesEverythingFromTheAxisOn) {
  const Tensor x = normal<double>({2, 3, 5}, 1, 0, 3);
  EXPECT_EQ(compare(run_op_on(make_op("LogSoftmax", {"X"}, {"Y"}), {{"X", x}})[0], naive(x, 15), 1e-14), "");
  EXPECT_EQ(compare(run_op_on(log_softmax(2), {{"X", x}})[0], naive(x, 5), 1e-14), "");
  EXPECT_EQ(compare(run_op_on(log_softmax(-1), {{"X", x}})[0], naive(x, 5), 1e-14), "");
  EXPECT_EQ(compare(run_op_on(log_softmax(0), {{"X", x}})[0], naive(x, 30), 1e-14), "");
}

// Longer than a piece of the sum, and with probabilities that no float holds.
TEST(LogSoftmax, LongRowsOfLargeScores) {
  const Tensor x = uniform<float>({30, 700}, -3000, 3000);
  EXPECT_EQ(compare(run_op_on(log_softmax(1), {{"X", x}})[0], naive(x, 700), 1e-6), "");
  const Tensor two = Tensor::of<float>({1, 2}, {3.0e38F, -3.0e38F});
  EXPECT_EQ(run_op_on(log_softmax(1), {{"X", two}})[0].data<float>()[0], 0);
}

TEST(LogSoftmax, AlongOneAxisAlone) {
  check_one_axis("LogSoftmax", [](double x, double sum) { return x - std::log(sum); });
}

TEST(LogSoftmax, MaskedScores) {
  const Tensor x = Tensor::of<float>({1, 3}, {0, -HUGE_VALF, 0});
  const float half = std::log(0.5F);
  EXPECT_EQ(
      compare(run_op_on(log_softmax(1), {{"X", x}})[0], Tensor::of<float>({1, 3}, {half, -HUGE_VALF, half}), 1e-6), "");
}

TEST(LogSoftmax, Gradients) {
  for (const Shape& shape : {Shape{3, 4}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}, Shape{2, 2, 3}})
    for (const int axis : {0, 1, -1})
      EXPECT_EQ(check_gradient(log_softmax(axis), {{"X", normal<double>(shape)}}, {"X"}), "") << shape.str() << axis;
  EXPECT_EQ(check_gradient(make_op("LogSoftmax", {"X"}, {"X"}), {{"X", normal<double>({2, 300})}}, {"X"}), "");
}

TEST(LogSoftmax, BadInputIsNamed) {
  EXPECT_NE(error_of([] {
              run_op_on(log_softmax(2), {{"X", normal<float>({2, 3})}});
            }).find("axis 2 is out of range for 2 dimensions"),
            std::string::npos);
  const std::string text = error_of([] {
    run_op_on(make_op("LogSoftmaxGradient", {"Y", "dY"}, {"dX"}),
              {{"Y", normal<float>({2, 3})}, {"dY", normal<float>({3, 2})}});
  });
  EXPECT_NE(text.find("Y is [2, 3], but dY [3, 2]"), std::string::npos) << text;
}

TEST(LogSoftmax, GradientsOfGradients) {
  for (const Shape& shape : {Shape{3, 4}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}, Shape{1, 300}, Shape{2, 2, 3}})
    for (const int axis : {0, 1, -1}) {
      const OperatorDef def = make_op("LogSoftmaxGradient", {"Y", "dY"}, {"dX"}, {make_arg("axis", axis)});
      const Feeds feeds = {{"Y", uniform<double>(shape, -2, 0)}, {"dY", normal<double>(shape, 2, 0, 0.1)}};
      EXPECT_EQ(check_gradient(def, feeds, {"Y", "dY"}), "") << shape.str() << axis;
    }
}

}  // namespace
}  // namespace stepnet::testing::log_softmax_test
