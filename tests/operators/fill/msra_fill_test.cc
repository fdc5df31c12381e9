#include "tests/operators/op_test.h"

namespace stepnet::testing::msra_fill_test {
namespace {

Tensor fill(const std::vector<int>& shape, DType type = DType::float32) {
  return run_op_on(
      make_op("MSRAFill", {}, {"Y"}, {make_arg("shape", shape), make_arg("dtype", static_cast<int>(type))}), {})[0];
}

TEST(MSRAFill, HasTheDeviationOfTheFanOut) {
  for (const DType type : {DType::float32, DType::float64}) {
    const Tensor y = fill({20, 100, 5}, type);
    ASSERT_EQ(y.dtype(), type);
    const Tensor values = to_double(y);
    double sum = 0, squares = 0;
    for (const double v : values.span<double>()) {
      sum += v;
      squares += v * v;
    }
    EXPECT_NEAR(sum / 10000, 0, 0.01);
    EXPECT_NEAR(squares / 10000, 0.02, 0.0015);
  }
}

TEST(MSRAFill, TakesEmptyShapes) { EXPECT_EQ(fill({3, 0}).str(), "float[3, 0]"); }

TEST(MSRAFill, NeedsTwoDimensions) {
  EXPECT_NE(error_of([] { fill({3}); }).find("at least two dimensions, but the shape is [3]"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::msra_fill_test
