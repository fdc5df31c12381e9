// Pow against the library's function and central differences: with a constant exponent, and with a tensor of them.
#include <cmath>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::pow_test {
namespace {

OperatorDef constant(float exponent) { return make_op("Pow", {"X"}, {"Y"}, {make_arg("exponent", exponent)}); }
OperatorDef pow_op(const std::vector<Argument>& args = {}, const char* output = "Y") {
  return make_op("Pow", {"X", "exponent"}, {output}, args);
}

double power(double x, double e) { return std::pow(x, e); }

TEST(Pow, ConstantExponents) {
  for (const float e : {0.0F, 1.0F, 2.0F, 3.0F, -1.0F, 0.5F, 2.5F})
    EXPECT_EQ(check_unary(
                  constant(e), [e](double x) { return std::pow(x, e); }, 0.5, 2, InPlace::no_gradient),
              "")
        << e;
  for (const float e : {1.0F, 2.0F, 3.0F, -2.0F})
    EXPECT_EQ(check_unary(
                  constant(e), [e](double x) { return std::pow(x, e); }, -2, -0.5, InPlace::no_gradient),
              "")
        << e;
}

TEST(Pow, GradientsAtZero) {
  const Tensor x = Tensor::of<double>({2}, {0, 0});
  for (const float e : {0.0F, 1.0F, 2.0F}) EXPECT_EQ(check_gradient(constant(e), {{"X", x}}, {"X"}, 1e-4), "") << e;
}

TEST(Pow, TensorsOfExponents) {
  for (const BroadcastCase& shapes : broadcast_cases()) {
    const Feeds feeds = {{"X", uniform<double>(shapes.a, 0.5, 2, 1)}, {"exponent", normal<double>(shapes.b, 2)}};
    const Tensor expected = combined(shapes, feeds[0].second, feeds[1].second, power);
    EXPECT_EQ(compare(run_op_on(pow_op(shapes.args), feeds)[0], expected, 1e-14), "") << shapes.b.str();
    EXPECT_EQ(check_gradient(pow_op(shapes.args), feeds, {"X", "exponent"}), "") << shapes.b.str();
  }
}

TEST(Pow, InPlaceOfWhatTheGradientDoesNotRead) {
  const Feeds feeds = {{"X", uniform<double>({2, 3}, 0.5, 2, 1)}, {"exponent", normal<double>({2, 3}, 2)}};
  const Tensor apart = run_op_on(pow_op(), feeds)[0];
  EXPECT_EQ(compare(run_op_on(pow_op({}, "X"), feeds)[0], apart, 0), "");
  EXPECT_EQ(compare(run_op_on(pow_op({}, "exponent"), feeds)[0], apart, 0), "");
  EXPECT_EQ(check_gradient(pow_op({}, "exponent"), feeds, {"exponent"}), "");
  EXPECT_NE(error_of([&] {
              check_gradient(pow_op({}, "exponent"), feeds, {"X"});
            }).find("\"exponent\" is overwritten in place, but the gradient of \"X\" is computed from it"),
            std::string::npos);
}

TEST(Pow, OneExponentIsNeeded) {
  const Feeds feeds = {{"X", normal<float>({2})}, {"exponent", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Pow", {"X"}, {"Y"}), feeds);
            }).find("there is no exponent: give the argument \"exponent\" or a second input"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(pow_op({make_arg("exponent", 2.0F)}), feeds);
            }).find("the exponent is given both as an argument and as the second input; give one"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::pow_test
