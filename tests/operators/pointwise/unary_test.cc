// The operators of unary.cc against functions of the standard library and central differences.
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::unary_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

OperatorDef unary_op(const std::string& type) { return make_op(type, {"X"}, {"Y"}); }

struct Smooth {
  const char* type;
  double (*value)(double);
  double low, high;
  InPlace in_place;
};

const Smooth kSmooth[] = {
    {"Abs", [](double x) { return std::abs(x); }, -3, 3, InPlace::no_gradient},
    {"Acos", [](double x) { return std::acos(x); }, -0.9, 0.9, InPlace::fine},
    {"Asin", [](double x) { return std::asin(x); }, -0.9, 0.9, InPlace::fine},
    {"Atan", [](double x) { return std::atan(x); }, -4, 4, InPlace::no_gradient},
    {"Cbrt", [](double x) { return std::cbrt(x); }, 0.3, 4, InPlace::fine},
    {"Cos", [](double x) { return std::cos(x); }, -4, 4, InPlace::no_gradient},
    {"Cosh", [](double x) { return std::cosh(x); }, -3, 3, InPlace::no_gradient},
    {"Cube", [](double x) { return x * x * x; }, -3, 3, InPlace::no_gradient},
    {"Erf", [](double x) { return std::erf(x); }, -3, 3, InPlace::no_gradient},
    {"Exp", [](double x) { return std::exp(x); }, -3, 3, InPlace::fine},
    {"Expm1", [](double x) { return std::expm1(x); }, -3, 3, InPlace::fine},
    {"Log", [](double x) { return std::log(x); }, 0.5, 4, InPlace::no_gradient},
    {"Log1p", [](double x) { return std::log1p(x); }, -0.8, 4, InPlace::fine},
    {"Negative", [](double x) { return -x; }, -3, 3, InPlace::fine},
    {"Reciprocal", [](double x) { return 1 / x; }, 0.3, 4, InPlace::fine},
    {"Rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.3, 4, InPlace::fine},
    {"Sin", [](double x) { return std::sin(x); }, -4, 4, InPlace::no_gradient},
    {"Sinh", [](double x) { return std::sinh(x); }, -3, 3, InPlace::no_gradient},
    {"Sqr", [](double x) { return x * x; }, -3, 3, InPlace::no_gradient},
    {"Sqrt", [](double x) { return std::sqrt(x); }, 0.3, 4, InPlace::fine},
    {"Tan", [](double x) { return std::tan(x); }, -1.3, 1.3, InPlace::fine},
};

class SmoothOps : public ::testing::TestWithParam<Smooth> {};

TEST_P(SmoothOps, ValuesAndGradient) {
  const Smooth& row = GetParam();
  EXPECT_EQ(check_unary(unary_op(row.type), row.value, row.low, row.high, row.in_place), "");
}

TEST_P(SmoothOps, BoolsAreRefused) {
  const std::string error = error_of([&] { run_op_on(unary_op(GetParam().type), {{"X", integers<bool>({2}, 0, 1)}}); });
  EXPECT_NE(error.find("there is no kernel for elements of type bool; there are kernels for float, double"),
            std::string::npos)
      << error;
}

INSTANTIATE_TEST_SUITE_P(Unary, SmoothOps, ::testing::ValuesIn(kSmooth),
                         [](const auto& row) { return std::string(row.param.type); });

struct Special {
  const char* type;
  double x, y;
};

// Where functions end, jump or are at their limits.
const Special kSpecial[] = {
    {"Exp", -800, 0},
    {"Exp", 800, kInfinity},
    {"Exp", kNan, kNan},
    {"Expm1", 1e-15, 1e-15},
    {"Expm1", -800, -1},
    {"Expm1", 800, kInfinity},
    {"Log", 0, -kInfinity},
    {"Log", -1, kNan},
    {"Log1p", -1, -kInfinity},
    {"Log1p", 1e-15, 1e-15},
    {"Log1p", -2, kNan},
    {"Sqrt", 0, 0},
    {"Sqrt", -1, kNan},
    {"Rsqrt", 0, kInfinity},
    {"Rsqrt", -1, kNan},
    {"Reciprocal", 0, kInfinity},
    {"Erf", 30, 1},
    {"Erf", -kInfinity, -1},
    {"Sin", kInfinity, kNan},
    {"Cos", kInfinity, kNan},
    {"Acos", 1.5, kNan},
    {"Acos", 1, 0},
    {"Asin", -1.5, kNan},
    {"Atan", kInfinity, std::numbers::pi / 2},
    {"Cbrt", -8, -2},
    {"Cbrt", 0, 0},
    {"Ceil", -0.5, 0},
    {"Ceil", 2.1, 3},
    {"Ceil", -3, -3},
    {"Ceil", kInfinity, kInfinity},
    {"Ceil", kNan, kNan},
    {"Cosh", -800, kInfinity},
    {"Sinh", -800, -kInfinity},
    {"Sinh", 1e-15, 1e-15},
    {"Tan", kInfinity, kNan},
    {"Floor", -0.5, -1},
    {"Floor", 2.9, 2},
    {"Floor", -3, -3},
    {"Floor", -kInfinity, -kInfinity},
    {"Floor", kNan, kNan},
    {"Round", 0.5, 0},
    {"Round", 1.5, 2},
    {"Round", 2.5, 2},
    {"Round", -2.5, -2},
    {"Round", -0.6, -1},
    {"Round", 2.4999, 2},
    {"Round", kInfinity, kInfinity},
    {"Round", kNan, kNan},
    {"Sign", -7, -1},
    {"Sign", 0, 0},
    {"Sign", 9, 1},
    {"Sign", kNan, 0},
};

TEST(Unary, SpecialNumbers) {
  for (const auto& [type, x, y] : kSpecial) {
    const double wide = run_op_on(unary_op(type), {{"X", Tensor::of<double>({1}, {x})}})[0].data<double>()[0];
    const float narrow =
        run_op_on(unary_op(type), {{"X", Tensor::of<float>({1}, {static_cast<float>(x)})}})[0].data<float>()[0];
    if (std::isnan(y)) {
      EXPECT_TRUE(std::isnan(wide) && std::isnan(narrow)) << type << ' ' << x;
    } else if (std::isinf(y) || y == 0) {
      EXPECT_EQ(wide, y) << type << ' ' << x;
      EXPECT_EQ(narrow, y) << type << ' ' << x;
    } else {
      EXPECT_NEAR(wide / y, 1, 1e-13) << type << ' ' << x;
      EXPECT_NEAR(narrow / y, 1, 1e-6) << type << ' ' << x;
    }
  }
}

TEST(Unary, ExpOfLargeNumbers) {
  const Tensor y = run_op_on(unary_op("Exp"), {{"X", Tensor::of<double>({3}, {-600, 600, 709})}})[0];
  EXPECT_NEAR(y.data<double>()[0] / std::exp(-600), 1, 1e-13);
  EXPECT_NEAR(y.data<double>()[1] / std::exp(600), 1, 1e-13);
  EXPECT_NEAR(y.data<double>()[2] / std::exp(709), 1, 1e-13);
  const Tensor z = run_op_on(unary_op("Exp"), {{"X", Tensor::of<float>({2}, {88, 89})}})[0];
  EXPECT_NEAR(z.data<float>()[0] / std::exp(88.0f), 1, 1e-6);
  EXPECT_TRUE(std::isinf(z.data<float>()[1]));
}

TEST(Unary, AbsGradient) {
  EXPECT_EQ(check_gradient_op("AbsGradient", "X", -3, 3, false), "");
  const Feeds feeds = {{"X", Tensor::of<float>({3}, {-2, 0, 3})}, {"dY", Tensor::of<float>({3}, {5, 6, 7})}};
  EXPECT_EQ(
      compare(run_op_on(make_op("AbsGradient", {"X", "dY"}, {"dX"}), feeds)[0], Tensor::of<float>({3}, {-5, 0, 7}), 0),
      "");
}

// The derivative is 0 almost everywhere.
TEST(Unary, GradientsEnd) {
  for (const char* type : {"Ceil", "Floor", "Round", "Sign"}) {
    EXPECT_EQ(op_spec(type).gradient_rule, GradientRule::stop) << type;
    for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{1}, Shape{3, 4}})
      EXPECT_EQ(run_op_on(unary_op(type), {{"X", normal<double>(shape)}})[0].shape(), shape) << type;
  }
}

template <class T>
void expect_integers() {
  const Tensor x = Tensor::of<T>({4}, {-7, 0, 1, 9});
  EXPECT_EQ(compare(run_op_on(unary_op("Sign"), {{"X", x}})[0], Tensor::of<T>({4}, {-1, 0, 1, 1}), 0), "");
  EXPECT_EQ(compare(run_op_on(unary_op("Negative"), {{"X", x}})[0], Tensor::of<T>({4}, {7, 0, -1, -9}), 0), "");
}

TEST(Unary, Integers) {
  expect_integers<int32_t>();
  expect_integers<int64_t>();
}

}  // namespace
}  // namespace stepnet::testing::unary_test
