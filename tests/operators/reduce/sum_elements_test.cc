// SumElements and SumSqrElements: sums and means.
#include "tests/operators/op_test.h"

namespace stepnet::testing::sum_elements_test {
namespace {

TEST(SumElements, SumMeanAndGradients) {
  for (const bool average : {false, true})
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 5}}) {
      const Tensor x = normal<double>(shape);
      double sum = 0, squares = 0;
      for (const double v : x.span<double>()) sum += v, squares += v * v;
      const double n = average && x.size() > 0 ? static_cast<double>(x.size()) : 1;
      const Argument arg = make_arg("average", average);
      const OperatorDef def = make_op("SumElements", {"X"}, {"Y"}, {arg});
      const OperatorDef sqr = make_op("SumSqrElements", {"X"}, {"Y"}, {arg});
      EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], Tensor::scalar(sum / n), 1e-14), "");
      EXPECT_EQ(compare(run_op_on(sqr, {{"X", x}})[0], Tensor::scalar(squares / n), 1e-14), "");
      EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
      EXPECT_EQ(check_gradient(sqr, {{"X", x}}, {"X"}), "");
      const OperatorDef back = make_op("SumElementsGradient", {"X", "dY"}, {"dX"}, {arg});
      EXPECT_EQ(check_gradient(back, {{"X", x}, {"dY", normal<double>({})}}, {"dY"}), "");
    }
}

TEST(SumElements, TheGivenGradientIsOneNumber) {
  const OperatorDef back = make_op("SumElementsGradient", {"X", "dY"}, {"dX"});
  EXPECT_NE(error_of([&] {
              run_op_on(back, {{"X", normal<float>({3})}, {"dY", normal<float>({2})}});
            }).find("dY must be one number, but is [2]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sum_elements_test
