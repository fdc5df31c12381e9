// compare(), by which the tests of operators judge.
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::compare_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinite = std::numeric_limits<double>::infinity();

std::string compare_two(double x, double y, double tol, ErrorScale scale = ErrorScale::element) {
  return compare(Tensor::of<double>({2}, {1e6, x}), Tensor::of<double>({2}, {1e6, y}), tol, scale);
}

// A large element beside it hides no error of a small one.
TEST(Compare, MeasuresEachElementByItself) {
  EXPECT_EQ(compare_two(1.0009, 1, 1e-3), "");
  EXPECT_EQ(compare_two(1.5, 1, 1e-3), "[1] is 1.5 against 1");
  EXPECT_EQ(compare_two(1e6 + 500, 1e6, 1e-3), "");
  EXPECT_EQ(compare_two(0.5, 0, 0.6), "");
}

TEST(Compare, MeasuresSumsByTheLargestElement) {
  EXPECT_EQ(compare_two(500, 0, 1e-3, ErrorScale::tensor), "");
  EXPECT_EQ(compare_two(1500, 0, 1e-3, ErrorScale::tensor), "[1] is 1500 against 0");
  EXPECT_EQ(compare_two(kInfinite, 1, 1e-3, ErrorScale::tensor), "[1] is inf against 1");
}

TEST(Compare, NaNIsEqualToNothing) {
  for (const ErrorScale scale : {ErrorScale::element, ErrorScale::tensor}) {
    EXPECT_EQ(compare_two(kNaN, kNaN, 1, scale), "[1] is nan against nan");
    EXPECT_EQ(compare_two(kNaN, 1, 1, scale), "[1] is nan against 1");
    EXPECT_EQ(compare_two(1, kNaN, 1, scale), "[1] is 1 against nan");
  }
}

TEST(Compare, InfinitiesAreEqualToThemselves) {
  EXPECT_EQ(compare_two(kInfinite, kInfinite, 0), "");
  EXPECT_EQ(compare_two(-kInfinite, kInfinite, 1), "[1] is -inf against inf");
  EXPECT_EQ(compare_two(1, kInfinite, 1), "[1] is 1 against inf");
}

TEST(Compare, NamesTheLargestError) {
  const Tensor a = Tensor::of<double>({3}, {1.1, 1.4, 2}), b = Tensor::of<double>({3}, {1, 1, 2});
  EXPECT_EQ(compare(a, b, 1e-6), "[1] is 1.4 against 1");
  EXPECT_EQ(compare(a, a.reshaped({3, 1}), 1), "shape [3] against [3, 1]");
}

}  // namespace
}  // namespace stepnet::testing::compare_test
