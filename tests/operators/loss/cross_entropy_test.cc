// CrossEntropy against the formula and central differences.
#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::cross_entropy_test {
namespace {

OperatorDef loss() { return make_op("CrossEntropy", {"X", "label"}, {"Y"}); }

Tensor naive(const Tensor& x, const Tensor& label, int64_t rows) {
  Tensor y = Tensor::zeros(DType::float64, {rows});
  for (int64_t i = 0; i < x.size(); ++i)
    y.data<double>()[i / (x.size() / rows)] -= label.data<double>()[i] * std::log(x.data<double>()[i]);
  return y;
}

TEST(CrossEntropy, WeighsLogarithmsByTheLabels) {
  const Tensor x = uniform<double>({4, 3, 2}, 0.1, 0.9), label = uniform<double>({4, 3, 2}, 0, 1, 2);
  EXPECT_EQ(compare(run_op_on(loss(), {{"X", x}, {"label", label}})[0], naive(x, label, 4), 1e-14), "");
  const Tensor row = x.reshaped({24}), weights = label.reshaped({24});
  EXPECT_EQ(compare(run_op_on(loss(), {{"X", row}, {"label", weights}})[0], naive(row, weights, 1), 1e-14), "");
}

TEST(CrossEntropy, ZeroIsBounded) {
  const Tensor x = Tensor::of<float>({1, 2}, {0, 1}), label = Tensor::of<float>({1, 2}, {1, 0});
  const float most = -std::log(1e-20F);
  EXPECT_EQ(compare(run_op_on(loss(), {{"X", x}, {"label", label}})[0], Tensor::of<float>({1}, {most}), 1e-6), "");
}

TEST(CrossEntropy, Gradients) {
  for (const Shape& shape : {Shape{4, 3}, Shape{1, 1}, Shape{0, 3}, Shape{3, 0}, Shape{5}, Shape{2, 2, 2}}) {
    const Feeds feeds = {{"X", uniform<double>(shape, 0.1, 0.9)}, {"label", uniform<double>(shape, 0, 1, 2)}};
    EXPECT_EQ(check_gradient(loss(), feeds, {"X", "label"}), "") << shape.str();
  }
}

TEST(CrossEntropy, BadShapesAreNamed) {
  auto error = [](const Shape& x, const Shape& label) {
    return error_of([&] { run_op_on(loss(), {{"X", normal<float>(x)}, {"label", normal<float>(label)}}); });
  };
  EXPECT_NE(error({2, 3}, {2}).find("X is [2, 3], but label [2]"), std::string::npos);
  EXPECT_NE(error({}, {}).find("X must have a dimension for the classes, but is a scalar"), std::string::npos);
  const std::string text = error_of([] {
    run_op_on(make_op("CrossEntropyGradient", {"X", "label", "dY"}, {"dX"}),
              {{"X", normal<float>({2, 3})}, {"label", normal<float>({2, 3})}, {"dY", normal<float>({3})}});
  });
  EXPECT_NE(text.find("dY is [3], but X [2, 3] has 2 rows"), std::string::npos) << text;
}

TEST(CrossEntropy, GradientsOfGradients) {
  const OperatorDef def = make_op("CrossEntropyGradient", {"X", "label", "dY"}, {"dX", "dlabel"});
  for (const Shape& shape : {Shape{4, 3}, Shape{1, 1}, Shape{0, 3}, Shape{3, 0}, Shape{5}, Shape{2, 2, 2}}) {
    const Feeds feeds = {{"X", uniform<double>(shape, 0.2, 0.9)},
                         {"label", uniform<double>(shape, 0, 1, 2)},
                         {"dY", normal<double>({shape.rank() == 1 ? 1 : shape[0]}, 3)}};
    EXPECT_EQ(check_gradient(def, feeds, {"X", "label", "dY"}), "") << shape.str();
    EXPECT_EQ(check_gradient(def, feeds, {"X", "label", "dY"}, 1e-7, 1e-5, {"dX"}), "") << shape.str();
    EXPECT_EQ(check_gradient(def, feeds, {"X", "dY"}, 1e-7, 1e-5, {"dlabel"}), "") << shape.str();
  }
}

}  // namespace
}  // namespace stepnet::testing::cross_entropy_test
