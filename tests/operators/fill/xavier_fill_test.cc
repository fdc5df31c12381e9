#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::xavier_fill_test {
namespace {

Tensor fill(const std::vector<int>& shape, DType type = DType::float32) {
  return run_op_on(
      make_op("XavierFill", {}, {"Y"}, {make_arg("shape", shape), make_arg("dtype", static_cast<int>(type))}), {})[0];
}

TEST(XavierFill, IsUniformInTheLimitOfTheFanIn) {
  for (const DType type : {DType::float32, DType::float64}) {
    const Tensor y = fill({1000, 3, 4}, type);
    ASSERT_EQ(y.dtype(), type);
    const Tensor values = to_double(y);
    const double limit = std::sqrt(3.0 / 12);
    double largest = 0, squares = 0;
    for (const double v : values.span<double>()) {
      largest = std::max(largest, std::fabs(v));
      squares += v * v;
    }
    EXPECT_LE(largest, limit * (1 + 1e-6));
    EXPECT_GT(largest, limit * 0.99);
    EXPECT_NEAR(squares / 12000, 1.0 / 12, 0.005);
  }
}

TEST(XavierFill, TakesEmptyShapes) {
  EXPECT_EQ(fill({0, 3}).str(), "float[0, 3]");
  EXPECT_EQ(fill({3, 0}).str(), "float[3, 0]");
}

TEST(XavierFill, NeedsADimension) {
  EXPECT_NE(error_of([] { fill({}); }).find("at least one dimension, but the shape is []"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::xavier_fill_test
