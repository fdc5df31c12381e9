// Negative: values, gradient, in place.
#include "tests/operators/op_test.h"

namespace stepnet::testing::negative_test {
namespace {

TEST(Negative, ValuesAndGradient) {
  const OperatorDef def = make_op("Negative", {"X"}, {"Y"}), in_place = make_op("Negative", {"X"}, {"X"});
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 4}}) {
    const Tensor x = normal<double>(shape);
    Tensor y = x.clone();
    for (double& v : y.span<double>()) v = 0 - v;
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], y, 0), "");
    EXPECT_EQ(compare(run_op_on(in_place, {{"X", x}})[0], y, 0), "");
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
  }
}

}  // namespace
}  // namespace stepnet::testing::negative_test
