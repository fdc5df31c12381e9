// Not: its values, in place, and that it takes bools alone.
#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::not_test {
namespace {

TEST(Not, ValuesAndInPlace) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{3, 5}}) {
    const Tensor x = integers<bool>(shape, 0, 1);
    const Tensor expected = mapped(x, [](double v) { return 1 - v; });
    for (const char* output : {"Y", "X"}) {
      const Tensor y = run_op_on(make_op("Not", {"X"}, {output}), {{"X", x}})[0];
      EXPECT_EQ(y.dtype(), DType::boolean);
      EXPECT_EQ(compare(y, expected, 0), "") << shape.str();
    }
  }
}

TEST(Not, NumbersAreNoBools) {
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Not", {"X"}, {"Y"}), {{"X", normal<float>({2})}});
            }).find("there is no kernel for elements of type float; there are kernels for bool"),
            std::string::npos);
}

TEST(Not, GradientsEnd) { EXPECT_EQ(op_spec("Not").gradient_rule, GradientRule::stop); }

}  // namespace
}  // namespace stepnet::testing::not_test
