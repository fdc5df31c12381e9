// Sign: its values in every type, and that gradients end there.
#include <limits>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::sign_test {
namespace {

OperatorDef sign_op() { return make_op("Sign", {"X"}, {"Y"}); }

template <class T>
void expect_signs() {
  const Tensor y = run_op_on(sign_op(), {{"X", Tensor::of<T>({4}, {-7, 0, 1, 9})}})[0];
  EXPECT_EQ(y.dtype(), dtype_of<T>());
  EXPECT_EQ(compare(y, Tensor::of<T>({4}, {-1, 0, 1, 1}), 0), "");
  EXPECT_EQ(run_op_on(sign_op(), {{"X", Tensor::zeros(dtype_of<T>(), {0, 2})}})[0].shape(), (Shape{0, 2}));
}

TEST(Sign, Values) {
  expect_signs<float>();
  expect_signs<double>();
  expect_signs<int32_t>();
  expect_signs<int64_t>();
}

TEST(Sign, NotANumberHasNone) {
  const Tensor x = Tensor::scalar(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(compare(run_op_on(sign_op(), {{"X", x}})[0], Tensor::scalar(0.0F), 0), "");
}

TEST(Sign, GradientsEnd) { EXPECT_EQ(op_spec("Sign").gradient_rule, GradientRule::stop); }

}  // namespace
}  // namespace stepnet::testing::sign_test
