// Sigmoid and SigmoidGradient against the library's functions and central differences.
#include <algorithm>
#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::sigmoid_test {
namespace {

Tensor expected(const Tensor& x) {
  Tensor y = to_double(x);
  for (double& v : y.span<double>()) v = 1 / (1 + std::exp(-v));
  return y;
}

TEST(Sigmoid, ValuesAndGradient) {
  const OperatorDef def = make_op("Sigmoid", {"X"}, {"Y"}), in_place = make_op("Sigmoid", {"X"}, {"X"});
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{5, 7}}) {
    const Tensor x = normal<double>(shape, 3, 0, 2);
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], expected(x), 1e-14), "");
    EXPECT_EQ(compare(run_op_on(in_place, {{"X", x}})[0], expected(x), 1e-14), "");
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
    EXPECT_EQ(check_gradient(in_place, {{"X", x}}, {"X"}), "");
  }
}

TEST(Sigmoid, FloatIsCloseToDouble) {
  const Tensor x = uniform<float>({3000}, -100, 100);
  EXPECT_EQ(compare(run_op_on(make_op("Sigmoid", {"X"}, {"Y"}), {{"X", x}})[0], expected(x), 3e-7), "");
}

TEST(Sigmoid, GradientOfGradient) {
  const OperatorDef def = make_op("SigmoidGradient", {"Y", "dY"}, {"dX"});
  const Feeds feeds = {{"Y", uniform<double>({4, 3}, 0.1, 0.9, 1)}, {"dY", normal<double>({4, 3}, 2)}};
  EXPECT_EQ(check_gradient(def, feeds, {"Y", "dY"}), "");
}

TEST(Sigmoid, GradientShapesMustBeEqual) {
  const OperatorDef def = make_op("SigmoidGradient", {"Y", "dY"}, {"dX"});
  EXPECT_NE(error_of([&] {
              run_op_on(def, {{"Y", normal<float>({2})}, {"dY", normal<float>({3})}});
            }).find("Y is [2], but dY [3]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sigmoid_test
