// Random fills of floats: their moments, their ranges, and that a key draws the same numbers again.
#include <cmath>

#include "operators/fill/random_fill.h"
#include "stepnet/random.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::random_fill_test {
namespace {

TEST(RandomFill, ElementIsAFunctionOfKeyAndIndex) {
  Tensor y = Tensor::empty(DType::float64, {1000});
  fill_normal(5, 2, 3, y);
  for (const int i : {0, 1, 999}) EXPECT_DOUBLE_EQ(y.data<double>()[i], 2 + 3 * random_normal(5, i));
  fill_centred(5, 0.5, y);
  for (const int i : {0, 1, 999}) EXPECT_DOUBLE_EQ(y.data<double>()[i], random_uniform(5, i) - 0.5);
  Tensor z = Tensor::empty(DType::float32, {1000});
  fill_centred(5, 0.5, z);
  EXPECT_EQ(compare(z, y, 1e-7), "");
}

Tensor gaussian(std::vector<Argument> args) {
  args.push_back(make_arg("shape", std::vector<int>{100, 100}));
  return run_op_on(make_op("GaussianFill", {}, {"Y"}, args), {})[0];
}

TEST(GaussianFill, HasTheMeanAndDeviation) {
  for (const DType type : {DType::float32, DType::float64}) {
    const Tensor y =
        gaussian({make_arg("mean", 3.0f), make_arg("std", 2.0f), make_arg("dtype", static_cast<int>(type))});
    ASSERT_EQ(y.dtype(), type);
    const Tensor values = to_double(y);
    double sum = 0, squares = 0;
    for (const double v : values.span<double>()) {
      sum += v;
      squares += (v - 3) * (v - 3);
    }
    EXPECT_NEAR(sum / 10000, 3, 0.1);
    EXPECT_NEAR(squares / 10000, 4, 0.3);
  }
}

TEST(GaussianFill, RefusesANegativeDeviation) {
  EXPECT_NE(error_of([] { gaussian({make_arg("std", -1.0f)}); }).find("must be at least 0, but is -1"),
            std::string::npos);
}

Tensor msra(const std::vector<int>& shape, DType type = DType::float32) {
  return run_op_on(
      make_op("MSRAFill", {}, {"Y"}, {make_arg("shape", shape), make_arg("dtype", static_cast<int>(type))}), {})[0];
}

TEST(MSRAFill, HasTheDeviationOfTheFanOut) {
  for (const DType type : {DType::float32, DType::float64}) {
    const Tensor y = msra({20, 100, 5}, type);
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

TEST(MSRAFill, TakesEmptyShapes) { EXPECT_EQ(msra({3, 0}).str(), "float[3, 0]"); }

TEST(MSRAFill, NeedsTwoDimensions) {
  EXPECT_NE(error_of([] { msra({3}); }).find("at least two dimensions, but the shape is [3]"), std::string::npos);
}

Tensor xavier(const std::vector<int>& shape, DType type = DType::float32) {
  return run_op_on(
      make_op("XavierFill", {}, {"Y"}, {make_arg("shape", shape), make_arg("dtype", static_cast<int>(type))}), {})[0];
}

TEST(XavierFill, IsUniformInTheLimitOfTheFanIn) {
  for (const DType type : {DType::float32, DType::float64}) {
    const Tensor y = xavier({1000, 3, 4}, type);
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
  EXPECT_EQ(xavier({0, 3}).str(), "float[0, 3]");
  EXPECT_EQ(xavier({3, 0}).str(), "float[3, 0]");
}

TEST(XavierFill, NeedsADimension) {
  EXPECT_NE(error_of([] { xavier({}); }).find("at least one dimension, but the shape is []"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::random_fill_test
