// Activations between two bounds, Swish and Gelu against their formulas and central differences.
#include <algorithm>
#include <cmath>

#include "tests/operators/elementwise_check.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::sigmoids_test {
namespace {

Tensor expected_sigmoid(const Tensor& x) {
  Tensor y = to_double(x);
  for (double& v : y.span<double>()) v = 1 / (1 + std::exp(-v));
  return y;
}

TEST(Sigmoid, ValuesAndGradient) {
  const OperatorDef def = make_op("Sigmoid", {"X"}, {"Y"}), in_place = make_op("Sigmoid", {"X"}, {"X"});
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{5, 7}}) {
    const Tensor x = normal<double>(shape, 3, 0, 2);
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], expected_sigmoid(x), 1e-14), "");
    EXPECT_EQ(compare(run_op_on(in_place, {{"X", x}})[0], expected_sigmoid(x), 1e-14), "");
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
    EXPECT_EQ(check_gradient(in_place, {{"X", x}}, {"X"}), "");
  }
}

TEST(Sigmoid, FloatIsCloseToDouble) {
  const Tensor x = uniform<float>({3000}, -100, 100);
  EXPECT_EQ(compare(run_op_on(make_op("Sigmoid", {"X"}, {"Y"}), {{"X", x}})[0], expected_sigmoid(x), 3e-7), "");
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

Tensor expected_tanh(const Tensor& x) {
  Tensor y = to_double(x);
  for (double& v : y.span<double>()) v = std::tanh(v);
  return y;
}

TEST(Tanh, ValuesAndGradient) {
  const OperatorDef def = make_op("Tanh", {"X"}, {"Y"}), in_place = make_op("Tanh", {"X"}, {"X"});
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{5, 7}}) {
    const Tensor x = normal<double>(shape, 3, 0, 2);
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], expected_tanh(x), 1e-14), "");
    EXPECT_EQ(compare(run_op_on(in_place, {{"X", x}})[0], expected_tanh(x), 1e-14), "");
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
    EXPECT_EQ(check_gradient(in_place, {{"X", x}}, {"X"}), "");
  }
}

TEST(Tanh, FloatIsCloseToDouble) {
  const Tensor x = uniform<float>({3000}, -100, 100);
  EXPECT_EQ(compare(run_op_on(make_op("Tanh", {"X"}, {"Y"}), {{"X", x}})[0], expected_tanh(x), 3e-7), "");
}

TEST(Tanh, GradientOfGradient) {
  const OperatorDef def = make_op("TanhGradient", {"Y", "dY"}, {"dX"});
  const Feeds feeds = {{"Y", uniform<double>({4, 3}, 0.1, 0.9, 1)}, {"dY", normal<double>({4, 3}, 2)}};
  EXPECT_EQ(check_gradient(def, feeds, {"Y", "dY"}), "");
}

TEST(Tanh, GradientShapesMustBeEqual) {
  const OperatorDef def = make_op("TanhGradient", {"Y", "dY"}, {"dX"});
  EXPECT_NE(error_of([&] {
              run_op_on(def, {{"Y", normal<float>({2})}, {"dY", normal<float>({3})}});
            }).find("Y is [2], but dY [3]"),
            std::string::npos);
}

TEST(Softsign, ValuesAndGradient) {
  const OperatorDef def = make_op("Softsign", {"X"}, {"Y"});
  EXPECT_EQ(check_unary(
                def, [](double x) { return x / (1 + std::abs(x)); }, -3, 3, InPlace::no_gradient),
            "");
}

TEST(Softsign, GradientOfGradient) { EXPECT_EQ(check_gradient_op("SoftsignGradient", "X", -3, 3, true), ""); }

OperatorDef hard(const std::vector<Argument>& args = {}) { return make_op("HardSigmoid", {"X"}, {"Y"}, args); }

UnaryFunction line(float alpha, float beta) {
  return [a = static_cast<double>(alpha), b = static_cast<double>(beta)](double x) {
    return std::clamp(a * x + b, 0.0, 1.0);
  };
}

TEST(HardSigmoid, ValuesAndGradient) {
  EXPECT_EQ(check_unary(hard(), line(0.2F, 0.5F), -4, 4, InPlace::fine), "");
  const std::vector<Argument> args = {make_arg("alpha", 0.5F), make_arg("beta", 0.25F)};
  EXPECT_EQ(check_unary(hard(args), line(0.5F, 0.25F), -4, 4, InPlace::fine), "");
}

TEST(HardSigmoid, GradientOfGradient) {
  EXPECT_EQ(check_gradient_op("HardSigmoidGradient", "Y", 0, 1, false), "");
  EXPECT_EQ(check_gradient_op("HardSigmoidGradient", "Y", 0, 1, false, {make_arg("alpha", 0.5F)}), "");
}

TEST(HardSigmoid, GradientAtTheBoundsIsZero) {
  const Feeds feeds = {{"Y", Tensor::of<float>({3}, {0, 0.5F, 1})}, {"dY", Tensor::of<float>({3}, {5, 6, 7})}};
  const OperatorDef def = make_op("HardSigmoidGradient", {"Y", "dY"}, {"dX"}, {make_arg("alpha", 0.5F)});
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<float>({3}, {0, 3, 0}), 0), "");
}

OperatorDef swish_gradient(const char* output = "dX") { return make_op("SwishGradient", {"X", "Y", "dY"}, {output}); }

TEST(Swish, ValuesAndGradient) {
  for (const char* name : {"Swish", "Silu"}) {
    const OperatorDef def = make_op(name, {"X"}, {"Y"});
    EXPECT_EQ(check_unary(
                  def, [](double x) { return x / (1 + std::exp(-x)); }, -4, 4, InPlace::refused),
              "")
        << name;
  }
}

TEST(Swish, GradientOfGradient) {
  const Feeds feeds = {{"X", normal<double>({4, 3}, 1, 0, 2)},
                       {"Y", Tensor::zeros(DType::float64, {4, 3})},
                       {"dY", normal<double>({4, 3}, 2)}};
  EXPECT_EQ(check_gradient(swish_gradient(), feeds, {"X", "dY"}), "");
  EXPECT_EQ(compare(run_op_on(swish_gradient("dY"), feeds)[0], run_op_on(swish_gradient(), feeds)[0], 0), "");
}

TEST(Swish, GradientShapesMustBeEqual) {
  Feeds feeds = {{"X", normal<float>({2})}, {"Y", normal<float>({2})}, {"dY", normal<float>({3})}};
  EXPECT_NE(error_of([&] { run_op_on(swish_gradient(), feeds); }).find("X is [2], but dY [3]"), std::string::npos);
  feeds[1].second = normal<float>({4});
  EXPECT_NE(error_of([&] { run_op_on(swish_gradient(), feeds); }).find("X is [2], but Y [4]"), std::string::npos);
}

OperatorDef gelu_op(const std::vector<Argument>& args = {}) { return make_op("Gelu", {"X"}, {"Y"}, args); }
OperatorDef gelu_gradient(const char* output = "dX") { return make_op("GeluGradient", {"dY", "X"}, {output}); }

TEST(Gelu, ValuesAndGradient) {
  const auto exact = [](double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; };
  EXPECT_EQ(check_unary(gelu_op({make_arg("fast_gelu", 0)}), exact, -4, 4, InPlace::no_gradient), "");
}

TEST(Gelu, FastOneIsTheApproximation) {
  const Argument fast = make_arg("fast_gelu", 1);
  const auto approximation = [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  };
  EXPECT_EQ(check_unary(gelu_op({fast}), approximation, -4, 4, InPlace::no_gradient), "");
  OperatorDef gradient = gelu_gradient();
  *gradient.add_arg() = fast;
  const Feeds feeds = {{"dY", normal<double>({4, 3}, 2)}, {"X", normal<double>({4, 3}, 1, 0, 2)}};
  EXPECT_EQ(check_gradient(gradient, feeds, {"dY", "X"}, 1e-9), "");
}

TEST(Gelu, SmallResultsAreExact) {
  const Tensor y = run_op_on(gelu_op(), {{"X", Tensor::scalar(-10.0)}})[0];
  EXPECT_NEAR(y.item<double>() / (-5 * std::erfc(10 / std::sqrt(2.0))), 1, 1e-12);
}

TEST(Gelu, GradientOfGradient) {
  const Feeds feeds = {{"dY", normal<double>({4, 3}, 2)}, {"X", normal<double>({4, 3}, 1, 0, 2)}};
  EXPECT_EQ(check_gradient(gelu_gradient(), feeds, {"dY", "X"}, 1e-9), "");
  EXPECT_EQ(compare(run_op_on(gelu_gradient("dY"), feeds)[0], run_op_on(gelu_gradient(), feeds)[0], 0), "");
}

TEST(Gelu, BadInputIsNamed) {
  EXPECT_NE(error_of([&] {
              run_op_on(gelu_gradient(), {{"dY", normal<float>({3})}, {"X", normal<float>({2})}});
            }).find("X is [2], but dY [3]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sigmoids_test
