// Clip and ClipGradient against the formula and central differences.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::clip_test {
namespace {

const std::vector<Argument> kBounds = {make_arg("min", -1.5F), make_arg("max", 1.0F)};

OperatorDef clip_op(const std::vector<Argument>& args) { return make_op("Clip", {"X"}, {"Y"}, args); }

TEST(Clip, ValuesAndGradient) {
  const auto between = [](double x) { return std::clamp(x, -1.5, 1.0); };
  EXPECT_EQ(check_unary(clip_op(kBounds), between, -3, 3, InPlace::fine), "");
  const auto above = [](double x) { return std::max(x, -1.5); };
  EXPECT_EQ(check_unary(clip_op({kBounds[0]}), above, -3, 3, InPlace::fine), "");
  const auto below = [](double x) { return std::min(x, 1.0); };
  EXPECT_EQ(check_unary(clip_op({kBounds[1]}), below, -3, 3, InPlace::fine), "");
}

TEST(Clip, WithoutBoundsAllPasses) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::of<double>({3}, {-infinity, 1e300, infinity});
  EXPECT_EQ(compare(run_op_on(clip_op({}), {{"X", x}})[0], x, 0), "");
}

TEST(Clip, NotANumberStays) {
  const Tensor x = Tensor::scalar(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(run_op_on(clip_op(kBounds), {{"X", x}})[0].item<float>()));
}

TEST(Clip, GradientOfGradient) { EXPECT_EQ(check_gradient_op("ClipGradient", "Y", -2, 2, false, kBounds), ""); }

TEST(Clip, GradientAtTheBoundsIsZero) {
  const Feeds feeds = {{"Y", Tensor::of<float>({3}, {-1.5F, 0, 1})}, {"dY", Tensor::of<float>({3}, {5, 6, 7})}};
  EXPECT_EQ(compare(run_op_on(make_op("ClipGradient", {"Y", "dY"}, {"dX"}, kBounds), feeds)[0],
                    Tensor::of<float>({3}, {0, 6, 0}), 0),
            "");
}

TEST(Clip, BoundsMustBeInOrder) {
  EXPECT_NE(error_of([&] {
              run_op_on(clip_op({make_arg("min", 2.0F), make_arg("max", 1.0F)}), {{"X", normal<float>({2})}});
            }).find("min is 2, which is not at most max, 1"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::clip_test
