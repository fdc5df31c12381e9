// ElementwiseLinear against a plain loop and central differences.
#include "tests/operators/op_test.h"

namespace stepnet::testing::elementwise_linear_test {
namespace {

OperatorDef linear(int axis) { return make_op("ElementwiseLinear", {"X", "w", "b"}, {"Y"}, {make_arg("axis", axis)}); }

template <class T>
Feeds feeds_for(const Shape& x, int axis) {
  const int64_t n = x.size_between(axis, x.rank());
  return {{"X", normal<T>(x, 1)}, {"w", normal<T>({n}, 2)}, {"b", normal<T>({n}, 3)}};
}

Tensor naive(const Feeds& feeds) {
  Tensor y = to_double(feeds[0].second);
  const Tensor w = to_double(feeds[1].second), b = to_double(feeds[2].second);
  for (int64_t i = 0; i < y.size(); ++i)
    y.data<double>()[i] = y.data<double>()[i] * w.data<double>()[i % w.size()] + b.data<double>()[i % w.size()];
  return y;
}

const std::pair<Shape, int> kShapes[] = {{{4, 5}, 1}, {{2, 3, 17}, 2}, {{2, 3, 4}, 1}, {{2, 3}, 0},
                                         {{1, 1}, 1}, {{0, 3}, 1},     {{3, 0}, 1}};

TEST(ElementwiseLinear, ForwardIsTheFormula) {
  for (const auto& [x, axis] : kShapes) {
    const Feeds feeds = feeds_for<double>(x, axis);
    EXPECT_EQ(compare(run_op_on(linear(axis), feeds)[0], naive(feeds), 1e-15), "") << x.str();
    const Feeds single = feeds_for<float>(x, axis);
    EXPECT_EQ(compare(run_op_on(linear(axis), single)[0], naive(single), 1e-6), "") << x.str();
  }
}

TEST(ElementwiseLinear, Gradients) {
  for (const auto& [x, axis] : kShapes)
    EXPECT_EQ(check_gradient(linear(axis), feeds_for<double>(x, axis), {"X", "w", "b"}), "") << x.str();
}

// Every choice of outputs that have gradients of their own.
TEST(ElementwiseLinear, GradientOfGradient) {
  const OperatorDef def = make_op("ElementwiseLinearGradient", {"dY", "X", "w"}, {"dX", "dw", "db"});
  const std::vector<std::vector<std::string>> choices = {
      {"dX"}, {"dw"}, {"db"}, {"dX", "dw"}, {"dX", "db"}, {"dw", "db"}, {"dX", "dw", "db"}};
  for (const Shape& x : {Shape{3, 4}, Shape{1, 1}, Shape{0, 3}, Shape{3, 0}}) {
    const Feeds feeds = {{"dY", normal<double>(x, 1)}, {"X", normal<double>(x, 2)}, {"w", normal<double>({x[1]}, 3)}};
    for (const auto& outputs : choices) {
      std::vector<std::string> wrt = {"dY"};
      if (outputs != choices[0] && outputs != choices[2] && outputs != choices[4]) wrt.push_back("X");
      if (outputs[0] == "dX") wrt.push_back("w");
      EXPECT_EQ(check_gradient(def, feeds, wrt, 1e-7, 1e-5, outputs), "") << x.str() << ", " << outputs[0];
    }
  }
}

TEST(ElementwiseLinear, MayOverwriteXUnlessItIsRead) {
  const OperatorDef def = make_op("ElementwiseLinear", {"X", "w", "b"}, {"X"});
  const Feeds feeds = feeds_for<double>({3, 4}, 1);
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], naive(feeds), 1e-15), "");
  EXPECT_EQ(check_gradient(def, feeds, {"X", "b"}), "");
}

TEST(ElementwiseLinear, BadInputIsNamed) {
  Feeds feeds = feeds_for<float>({2, 4}, 1);
  feeds[1].second = normal<float>({3});
  EXPECT_NE(error_of([&] {
              run_op_on(linear(1), feeds);
            }).find("w must be [4], as X [2, 4] has rows of 4 values from axis 1 on, but is [3]"),
            std::string::npos);
  const OperatorDef gradient = make_op("ElementwiseLinearGradient", {"dY", "X", "w"}, {"dX", "dw", "db"});
  EXPECT_NE(error_of([&] {
              run_op_on(gradient, {{"dY", normal<float>({4, 2})}, feeds[0], {"w", normal<float>({4})}});
            }).find("dY is [4, 2], but X [2, 4]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::elementwise_linear_test
