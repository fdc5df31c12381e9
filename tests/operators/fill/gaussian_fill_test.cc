#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::gaussian_fill_test {
namespace {

Tensor fill(std::vector<Argument> args) {
  args.push_back(make_arg("shape", std::vector<int>{100, 100}));
  return run_op_on(make_op("GaussianFill", {}, {"Y"}, args), {})[0];
}

TEST(GaussianFill, HasTheMeanAndDeviation) {
  for (const DType type : {DType::float32, DType::float64}) {
    const Tensor y = fill({make_arg("mean", 3.0f), make_arg("std", 2.0f), make_arg("dtype", static_cast<int>(type))});
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
  EXPECT_NE(error_of([] { fill({make_arg("std", -1.0f)}); }).find("must be at least 0, but is -1"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::gaussian_fill_test
