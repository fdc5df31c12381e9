// Abs and AbsGradient against the library's function and central differences.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::abs_test {
namespace {

TEST(Abs, ValuesAndGradient) {
  const OperatorDef def = make_op("Abs", {"X"}, {"Y"});
  EXPECT_EQ(check_unary(
                def, [](double x) { return std::abs(x); }, -3, 3, InPlace::no_gradient),
            "");
}

TEST(Abs, GradientOfGradient) { EXPECT_EQ(check_gradient_op("AbsGradient", "X", -3, 3, false), ""); }

TEST(Abs, GradientAtZeroIsZero) {
  const Feeds feeds = {{"X", Tensor::of<float>({3}, {-2, 0, 3})}, {"dY", Tensor::of<float>({3}, {5, 6, 7})}};
  EXPECT_EQ(
      compare(run_op_on(make_op("AbsGradient", {"X", "dY"}, {"dX"}), feeds)[0], Tensor::of<float>({3}, {-5, 0, 7}), 0),
      "");
}

}  // namespace
}  // namespace stepnet::testing::abs_test
