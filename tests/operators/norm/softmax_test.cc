// Softmax against plain loops and central differences.
#include <cmath>

#include "tests/operators/norm/one_axis_check.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::softmax_test {
namespace {

Tensor naive(const Tensor& x, int64_t row) {
  Tensor y = to_double(x);
  for (int64_t at = 0; at < y.size(); at += row) {
    double* p = y.data<double>() + at;
    double most = p[0], sum = 0;
    for (int64_t j = 0; j < row; ++j) most = std::max(most, p[j]);
    for (int64_t j = 0; j < row; ++j) sum += p[j] = std::exp(p[j] - most);
    for (int64_t j = 0; j < row; ++j) p[j] /= sum;
  }
  return y;
}

OperatorDef softmax(int axis) { return make_op("Softmax", {"X"}, {"Y"}, {make_arg("axis", axis)}); }

TEST(Softmax, NormalisesEverythingFromTheAxisOn) {
  const Tensor x = normal<double>({2, 3, 5}, 1, 0, 3);
  EXPECT_EQ(compare(run_op_on(make_op("Softmax", {"X"}, {"Y"}), {{"X", x}})[0], naive(x, 15), 1e-14), "");
  EXPECT_EQ(compare(run_op_on(softmax(2), {{"X", x}})[0], naive(x, 5), 1e-14), "");
  EXPECT_EQ(compare(run_op_on(softmax(-1), {{"X", x}})[0], naive(x, 5), 1e-14), "");
  EXPECT_EQ(compare(run_op_on(softmax(0), {{"X", x}})[0], naive(x, 30), 1e-14), "");
}

TEST(Softmax, LargeScoresStayFinite) {
  const Tensor x = uniform<float>({300, 70}, -3000, 3000);
  EXPECT_EQ(compare(run_op_on(softmax(1), {{"X", x}})[0], naive(x, 70), 1e-6), "");
}

TEST(Softmax, AlongOneAxisAlone) {
  check_one_axis("Softmax", [](double x, double sum) { return std::exp(x) / sum; });
}

TEST(Softmax, Gradients) {
  for (const Shape& shape : {Shape{3, 4}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}, Shape{2, 2, 3}})
    for (const int axis : {0, 1, -1})
      EXPECT_EQ(check_gradient(softmax(axis), {{"X", normal<double>(shape)}}, {"X"}), "") << shape.str() << axis;
  EXPECT_EQ(check_gradient(make_op("Softmax", {"X"}, {"X"}), {{"X", normal<double>({3, 4})}}, {"X"}), "");
}

TEST(Softmax, AxisMustExist) {
  EXPECT_NE(error_of([] { run_op_on(softmax(2), {{"X", normal<float>({2, 3})}}); }).find('2'), std::string::npos);
}

TEST(Softmax, GradientsOfGradients) {
  for (const Shape& shape : {Shape{3, 4}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}, Shape{2, 2, 3}})
    for (const int axis : {0, 1, -1}) {
      const OperatorDef def = make_op("SoftmaxGradient", {"Y", "dY"}, {"dX"}, {make_arg("axis", axis)});
      const Feeds feeds = {{"Y", uniform<double>(shape, 0, 1)}, {"dY", normal<double>(shape, 2)}};
      EXPECT_EQ(check_gradient(def, feeds, {"Y", "dY"}), "") << shape.str() << axis;
    }
}

TEST(Softmax, BadGradientsAreNamed) {
  const Feeds feeds = {{"Y", normal<float>({2, 3})}, {"dY", normal<float>({2, 4})}};
  const std::string first = error_of([&] { run_op_on(make_op("SoftmaxGradient", {"Y", "dY"}, {"dX"}), feeds); });
  EXPECT_NE(first.find("Y is [2, 3], but dY [2, 4]"), std::string::npos) << first;
}

}  // namespace
}  // namespace stepnet::testing::softmax_test
