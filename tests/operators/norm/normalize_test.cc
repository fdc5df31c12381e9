// Normalize against plain loops and central differences.
#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::normalize_test {
namespace {

OperatorDef normalize(int axis) { return make_op("Normalize", {"X"}, {"Y"}, {make_arg("axis", axis)}); }

Tensor naive(const Tensor& x, int axis) {
  Tensor y = x.clone();
  const int64_t size = x.dim(axis), inner = x.shape().from(axis + 1).size();
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t first = i - i / inner % size * inner;
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += x.data<double>()[first + k * inner] * x.data<double>()[first + k * inner];
    y.data<double>()[i] = x.data<double>()[i] / std::sqrt(sum);
  }
  return y;
}

TEST(Normalize, DividesByTheNormAlongTheAxis) {
  const Tensor x = normal<double>({3, 4, 5});
  for (int axis = 0; axis < 3; ++axis)
    EXPECT_EQ(compare(run_op_on(normalize(axis - 3), {{"X", x}})[0], naive(x, axis), 1e-14), "") << axis;
  EXPECT_EQ(compare(run_op_on(make_op("Normalize", {"X"}, {"Y"}), {{"X", x}})[0], naive(x, 2), 1e-14), "");
}

TEST(Normalize, LargeFloatsAndZeros) {
  const Tensor x = Tensor::of<float>({2, 2}, {3e30F, 4e30F, 0, 0});
  EXPECT_EQ(compare(run_op_on(normalize(1), {{"X", x}})[0], Tensor::of<float>({2, 2}, {0.6F, 0.8F, 0, 0}), 1e-6), "");
  const Feeds feeds = {{"X", x}, {"dY", Tensor::of<float>({2, 2}, {0, 0, 1, 2})}};
  const Tensor dx = run_op_on(make_op("NormalizeGradient", {"X", "dY"}, {"dX"}), feeds)[0];
  EXPECT_EQ(compare(dx, Tensor::of<float>({2, 2}, {0, 0, 1e12F, 2e12F}), 1e-6), "");
}

TEST(Normalize, Gradients) {
  for (const Shape& shape : {Shape{3, 4}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}, Shape{2, 2, 3}})
    for (const int axis : {0, 1, -1})
      EXPECT_EQ(check_gradient(normalize(axis), {{"X", normal<double>(shape)}}, {"X"}), "") << shape.str() << axis;
}

TEST(Normalize, BadInputIsNamed) {
  EXPECT_NE(error_of([] {
              run_op_on(normalize(2), {{"X", normal<float>({2, 3})}});
            }).find("axis 2 is out of range for 2 dimensions"),
            std::string::npos);
  const std::string text = error_of([] {
    run_op_on(make_op("NormalizeGradient", {"X", "dY"}, {"dX"}),
              {{"X", normal<float>({2, 3})}, {"dY", normal<float>({3, 2})}});
  });
  EXPECT_NE(text.find("X is [2, 3], but dY [3, 2]"), std::string::npos) << text;
}

TEST(Normalize, GradientsOfGradients) {
  for (const Shape& shape : {Shape{3, 4}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}, Shape{2, 2, 3}})
    for (const int axis : {0, 1, -1}) {
      const OperatorDef def = make_op("NormalizeGradient", {"X", "dY"}, {"dX"}, {make_arg("axis", axis)});
      const Feeds feeds = {{"X", normal<double>(shape)}, {"dY", normal<double>(shape, 2)}};
      EXPECT_EQ(check_gradient(def, feeds, {"X", "dY"}, 1e-7, 1e-6), "") << shape.str() << axis;
    }
}

}  // namespace
}  // namespace stepnet::testing::normalize_test
