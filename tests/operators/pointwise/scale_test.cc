// Scale against the formula and central differences.
#include "tests/operators/op_test.h"

namespace stepnet::testing::scale_test {
namespace {

OperatorDef scale(float by, const char* output = "Y") {
  return make_op("Scale", {"X"}, {output}, {make_arg("scale", by)});
}

TEST(Scale, MultipliesByTheConstant) {
  EXPECT_EQ(compare(run_op_on(scale(-2.5F), {{"X", Tensor::of<float>({3}, {1, 0, -4})}})[0],
                    Tensor::of<float>({3}, {-2.5F, 0, 10}), 0),
            "");
  EXPECT_EQ(compare(run_op_on(make_op("Scale", {"X"}, {"Y"}), {{"X", Tensor::of<double>({1, 2}, {7, 8})}})[0],
                    Tensor::of<double>({1, 2}, {7, 8}), 0),
            "");
}

TEST(Scale, Gradients) {
  for (const Shape& x : {Shape{3, 4}, Shape{1}, Shape{0, 2}})
    EXPECT_EQ(check_gradient(scale(0.75F), {{"X", normal<double>(x)}}, {"X"}), "");
  EXPECT_EQ(check_gradient(scale(0.75F, "X"), {{"X", normal<double>({3})}}, {"X"}), "");
}

}  // namespace
}  // namespace stepnet::testing::scale_test
