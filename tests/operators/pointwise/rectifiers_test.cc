// Relu and the like against their formulas and central differences.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/operators/elementwise_check.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::rectifiers_test {
namespace {

Tensor expected(const Tensor& x) {
  Tensor y = to_double(x);
  for (double& v : y.span<double>()) v = std::max(v, 0.0);
  return y;
}

TEST(Relu, ValuesAndGradient) {
  const OperatorDef def = make_op("Relu", {"X"}, {"Y"}), in_place = make_op("Relu", {"X"}, {"X"});
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{5, 7}}) {
    const Tensor x = normal<double>(shape, 3, 0, 2);
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], expected(x), 1e-14), "");
    EXPECT_EQ(compare(run_op_on(in_place, {{"X", x}})[0], expected(x), 1e-14), "");
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
    EXPECT_EQ(check_gradient(in_place, {{"X", x}}, {"X"}), "");
  }
}

TEST(Relu, FloatIsCloseToDouble) {
  const Tensor x = uniform<float>({3000}, -100, 100);
  EXPECT_EQ(compare(run_op_on(make_op("Relu", {"X"}, {"Y"}), {{"X", x}})[0], expected(x), 3e-7), "");
}

TEST(Relu, GradientOfGradient) {
  const OperatorDef def = make_op("ReluGradient", {"Y", "dY"}, {"dX"});
  const Feeds feeds = {{"Y", uniform<double>({4, 3}, 0.1, 0.9, 1)}, {"dY", normal<double>({4, 3}, 2)}};
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}), "");
}

TEST(Relu, GradientShapesMustBeEqual) {
  const OperatorDef def = make_op("ReluGradient", {"Y", "dY"}, {"dX"});
  EXPECT_NE(error_of([&] {
              run_op_on(def, {{"Y", normal<float>({2})}, {"dY", normal<float>({3})}});
            }).find("Y is [2], but dY [3]"),
            std::string::npos);
}

OperatorDef leaky(const std::vector<Argument>& args, const char* output = "Y") {
  return make_op("LeakyRelu", {"X"}, {output}, args);
}

UnaryFunction bent(float alpha) {
  return [slope = static_cast<double>(alpha)](double x) { return x > 0 ? x : slope * x; };
}

TEST(LeakyRelu, ValuesAndGradient) {
  EXPECT_EQ(check_unary(leaky({}), bent(0.01F), -3, 3, InPlace::fine), "");
  for (const float alpha : {0.0F, 0.3F, 1.5F})
    EXPECT_EQ(check_unary(leaky({make_arg("alpha", alpha)}), bent(alpha), -3, 3, InPlace::fine), "") << alpha;
}

TEST(LeakyRelu, GradientOfGradient) {
  EXPECT_EQ(check_gradient_op("LeakyReluGradient", "Y", -2, 2, false, {make_arg("alpha", 0.3F)}), "");
}

// Y is then positive on both sides.
TEST(LeakyRelu, WithANegativeSlopeTheGradientReadsX) {
  const std::vector<Argument> args = {make_arg("alpha", -0.5F)};
  const Feeds feeds = {{"X", uniform<double>({4, 5}, -2, 2)}};
  EXPECT_EQ(compare(run_op_on(leaky(args), feeds)[0], mapped(feeds[0].second, bent(-0.5F)), 0), "");
  EXPECT_EQ(check_gradient(leaky(args), feeds, {"X"}), "");
  EXPECT_NE(error_of([&] {
              check_gradient(leaky(args, "X"), feeds, {"X"});
            }).find("the gradient reads version 0 of \"X\", but operator 0 (LeakyRelu) has made it version 1"),
            std::string::npos);
}

TEST(LeakyRelu, GradientAtZeroIsThatOfTheSlope) {
  const Feeds feeds = {{"Y", Tensor::of<float>({2}, {0, 1})}, {"dY", Tensor::of<float>({2}, {6, 7})}};
  const OperatorDef def = make_op("LeakyReluGradient", {"Y", "dY"}, {"dX"}, {make_arg("alpha", 0.5F)});
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<float>({2}, {3, 7}), 0), "");
}

OperatorDef elu_op(const std::vector<Argument>& args = {}) { return make_op("Elu", {"X"}, {"Y"}, args); }

UnaryFunction elu_of(double alpha) {
  return [alpha](double x) { return x > 0 ? x : alpha * std::expm1(x); };
}

TEST(Elu, ValuesAndGradient) {
  EXPECT_EQ(check_unary(elu_op(), elu_of(1), -3, 3, InPlace::fine), "");
  for (const float alpha : {0.0F, 0.25F, 2.0F})
    EXPECT_EQ(check_unary(elu_op({make_arg("alpha", alpha)}), elu_of(alpha), -3, 3, InPlace::fine), "") << alpha;
}

TEST(Elu, SmallAndLargeNumbers) {
  const Tensor y = run_op_on(elu_op(), {{"X", Tensor::of<float>({3}, {-1e-9F, -1000, 1e30F})}})[0];
  EXPECT_NEAR(y.data<float>()[0] / -1e-9F, 1, 1e-6);
  EXPECT_EQ(y.data<float>()[1], -1);
  EXPECT_EQ(y.data<float>()[2], 1e30F);
}

TEST(Elu, GradientOfGradient) {
  EXPECT_EQ(check_gradient_op("EluGradient", "Y", -0.9, 2, true), "");
  EXPECT_EQ(check_gradient_op("EluGradient", "Y", -0.9, 2, true, {make_arg("alpha", 2.0F)}), "");
}

TEST(Elu, AlphaIsNotNegative) {
  EXPECT_NE(error_of([&] {
              run_op_on(elu_op({make_arg("alpha", -1.0F)}), {{"X", normal<float>({2})}});
            }).find("argument \"alpha\" must be at least 0, but is -1"),
            std::string::npos);
}

OperatorDef softplus_op() { return make_op("Softplus", {"X"}, {"Y"}); }

TEST(Softplus, ValuesAndGradient) {
  EXPECT_EQ(check_unary(
                softplus_op(), [](double x) { return std::log1p(std::exp(x)); }, -4, 4, InPlace::fine),
            "");
}

TEST(Softplus, SmallAndLargeNumbers) {
  const Tensor y = run_op_on(softplus_op(), {{"X", Tensor::of<double>({3}, {-50, 1000, -1000})}})[0];
  EXPECT_NEAR(y.data<double>()[0] / std::exp(-50.0), 1, 1e-13);
  EXPECT_EQ(y.data<double>()[1], 1000);
  EXPECT_NEAR(y.data<double>()[2], 0, 1e-300);
}

TEST(Softplus, GradientOfSmallResults) {
  const Feeds feeds = {{"Y", Tensor::scalar(1e-20)}, {"dY", Tensor::scalar(3.0)}};
  const Tensor dx = run_op_on(make_op("SoftplusGradient", {"Y", "dY"}, {"dX"}), feeds)[0];
  EXPECT_NEAR(dx.item<double>() / 3e-20, 1, 1e-14);
}

TEST(Softplus, GradientOfGradient) { EXPECT_EQ(check_gradient_op("SoftplusGradient", "Y", 0.1, 3, true), ""); }

namespace of_clip {

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

}  // namespace of_clip

}  // namespace
}  // namespace stepnet::testing::rectifiers_test
