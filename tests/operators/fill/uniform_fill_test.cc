#include <algorithm>
#include <cmath>
#include <limits>

#include "core/compute/threads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::uniform_fill_test {
namespace {

Tensor fill(const std::string& type, std::vector<Argument> args, const std::vector<int>& shape = {4000},
            uint64_t seed = 1) {
  args.push_back(make_arg("shape", shape));
  return run_op_on(make_op(type, {}, {"Y"}, args), {}, seed)[0];
}

TEST(UniformFill, CoversItsRangeEvenly) {
  for (const DType type : {DType::float32, DType::float64}) {
    const Tensor y =
        fill("UniformFill", {make_arg("min", -2.0f), make_arg("max", 4.0f), make_arg("dtype", static_cast<int>(type))});
    ASSERT_EQ(y.dtype(), type);
    const Tensor values = to_double(y);
    double sum = 0, squares = 0;
    for (const double v : values.span<double>()) {
      EXPECT_TRUE(v >= -2 && v <= 4) << v;
      sum += v;
      squares += (v - 1) * (v - 1);
    }
    EXPECT_NEAR(sum / 4000, 1, 0.15);      // 5 deviations of the mean
    EXPECT_NEAR(squares / 4000, 3, 0.25);  // a variance of 6^2 / 12
  }
}

TEST(UniformFill, DependsOnTheSeedAlone) {
  const Tensor once = fill("UniformFill", {}, {100000});
  EXPECT_EQ(compare(fill("UniformFill", {}, {100000}), once, 0), "");
  EXPECT_NE(compare(fill("UniformFill", {}, {100000}, 2), once, 0), "");
  const SerialScope serial;
  EXPECT_EQ(compare(fill("UniformFill", {}, {100000}), once, 0), "");
}

TEST(UniformFill, TakesItsBoundsAsInputs) {
  const Feeds feeds = {
      {"S", Tensor::of<int64_t>({1}, {50})}, {"a", Tensor::of<float>({1}, {7})}, {"b", Tensor::of<float>({1}, {8})}};
  const OperatorDef def = make_op("UniformFill", {"S", "a", "b"}, {"Y"}, {make_arg("input_as_shape", true)});
  const Tensor y = run_op_on(def, feeds)[0];
  ASSERT_EQ(y.size(), 50);
  for (const float v : y.span<float>()) EXPECT_TRUE(v >= 7 && v <= 8) << v;
  OperatorDef both = def;
  *both.add_arg() = make_arg("min", 1.0f);
  EXPECT_NE(error_of([&] { run_op_on(both, feeds); }).find("as inputs and as arguments"), std::string::npos);
}

TEST(UniformFill, RefusesBadArguments) {
  EXPECT_NE(error_of([] {
              fill("UniformFill", {make_arg("min", 2.0f)});
            }).find("min must not be greater than max, but they are 2 and 1"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              fill("UniformFill", {make_arg("max", std::numeric_limits<float>::infinity())});
            }).find("min and max must be finite, but they are 0 and inf"),
            std::string::npos);
  EXPECT_NE(error_of([] { fill("UniformFill", {make_arg("dtype", 2)}); }).find("must be float or double, but is int32"),
            std::string::npos);
}

TEST(UniformIntFill, IncludesBothEnds) {
  const Tensor y = fill("UniformIntFill", {make_arg("min", -1), make_arg("max", 2)});
  ASSERT_EQ(y.dtype(), DType::int32);
  std::vector<int> count(4, 0);
  for (const int32_t v : y.span<int32_t>()) {
    ASSERT_TRUE(v >= -1 && v <= 2) << v;
    ++count[v + 1];
  }
  for (const int c : count) EXPECT_NEAR(c, 1000, 140);
}

TEST(UniformIntFill, TakesItsBoundsAsInputs) {
  const OperatorDef def = make_op("UniformIntFill", {"X", "a", "b"}, {"Y"});
  Feeds feeds = {{"X", normal<float>({50})}, {"a", Tensor::scalar<int64_t>(7)}, {"b", Tensor::scalar<int32_t>(9)}};
  const Tensor y = run_op_on(def, feeds)[0];
  for (const int32_t v : y.span<int32_t>()) EXPECT_TRUE(v >= 7 && v <= 9) << v;
  feeds[2].second = Tensor::scalar<float>(9);
  EXPECT_NE(error_of([&] { run_op_on(def, feeds); }).find("max must be an integer, but is float[]"), std::string::npos);
  feeds[2].second = Tensor::scalar<int64_t>(int64_t{1} << 31);
  EXPECT_NE(error_of([&] { run_op_on(def, feeds); }).find("the value 2147483648 does not fit int32"),
            std::string::npos);
}

TEST(UniformIntFill, NeedsMinBelowMax) {
  EXPECT_NE(error_of([] { fill("UniformIntFill", {make_arg("min", 1)}); }).find("min must be less than max"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::uniform_fill_test
