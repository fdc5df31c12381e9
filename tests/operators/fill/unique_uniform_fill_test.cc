// UniqueUniformFill: no value twice, none outside of the bounds or to be avoided, and all choices as likely.
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tests/operators/op_test.h"

namespace stepnet::testing::unique_uniform_fill_test {
namespace {

OperatorDef fill(const std::vector<std::string>& inputs, const std::vector<Argument>& args) {
  return make_op("UniqueUniformFill", inputs, {"Y"}, args);
}

std::vector<int32_t> draw(int64_t count, int min, int max, uint64_t seed = 1) {
  const OperatorDef def =
      fill({}, {make_arg("shape", std::vector<int64_t>{count}), make_arg("min", min), make_arg("max", max)});
  const Tensor y = run_op_on(def, {}, seed)[0];
  return {y.span<int32_t>().begin(), y.span<int32_t>().end()};
}

TEST(UniqueUniformFill, AllOfARangeAreDrawnOnce) {
  for (const int count : {0, 1, 2, 100}) {
    const std::vector<int32_t> values = draw(count, -3, count - 4 + (count == 0 ? 1 : 0));
    const std::set<int32_t> different(values.begin(), values.end());
    EXPECT_EQ(different.size(), static_cast<size_t>(count));
    if (count > 0) {
      EXPECT_EQ(*different.begin(), -3);
      EXPECT_EQ(*different.rbegin(), count - 4);
    }
  }
}

// Of the 20 ordered pairs from 5 integers each comes up about 300 times in 6000 draws.
TEST(UniqueUniformFill, AllChoicesAreAsLikely) {
  std::map<std::pair<int32_t, int32_t>, int> times;
  for (uint64_t seed = 1; seed <= 6000; ++seed) {
    const std::vector<int32_t> pair = draw(2, 0, 4, seed);
    ++times[{pair[0], pair[1]}];
  }
  EXPECT_EQ(times.size(), 20U);
  for (const auto& [pair, count] : times) EXPECT_LT(std::abs(count - 300), 90) << pair.first << ", " << pair.second;
}

TEST(UniqueUniformFill, AvoidsWhatItIsTold) {
  const OperatorDef def = fill({"X", "avoid"}, {make_arg("max", 9), make_arg("dtype", 10)});
  const Tensor avoid = Tensor::of<int64_t>({6}, {0, 9, 4, 4, -7, 12});
  const Tensor y = run_op_on(def, {{"X", normal<float>({7, 1})}, {"avoid", avoid}})[0];
  EXPECT_EQ(y.str(), "int64[7, 1]");
  const std::set<int64_t> values(y.span<int64_t>().begin(), y.span<int64_t>().end());
  EXPECT_EQ(values, (std::set<int64_t>{1, 2, 3, 5, 6, 7, 8}));
}

TEST(UniqueUniformFill, AllIntegersOfAType) {
  const int64_t least = std::numeric_limits<int32_t>::min(), greatest = std::numeric_limits<int32_t>::max();
  const OperatorDef def = fill({"X"}, {make_arg("min", least), make_arg("max", greatest)});
  EXPECT_EQ(run_op_on(def, {{"X", normal<float>({4})}})[0].str(), "int32[4]");
}

std::string error_for(const std::vector<Argument>& args) {
  return error_of([&] { run_op_on(fill({"X"}, args), {{"X", normal<float>({4})}}); });
}

TEST(UniqueUniformFill, BadInputIsNamed) {
  EXPECT_NE(error_for({make_arg("max", 2)})
                .find("4 different integers are to be drawn, but from min 0 to max 2 there are 3 that are not to be"),
            std::string::npos);
  EXPECT_NE(error_for({make_arg("min", 3)}).find("min must not be greater than max, but they are 3 and 1"),
            std::string::npos);
  EXPECT_NE(error_for({make_arg("dtype", 1)}).find("\"dtype\" must be int32 or int64, but is float"),
            std::string::npos);
  const int64_t least = std::numeric_limits<int64_t>::min(), greatest = std::numeric_limits<int64_t>::max();
  EXPECT_NE(error_for({make_arg("min", least), make_arg("max", greatest), make_arg("dtype", 10)})
                .find("there are more integers than can be counted"),
            std::string::npos);
  EXPECT_NE(error_for({make_arg("min", int64_t{1} << 40), make_arg("max", (int64_t{1} << 40) + 9)})
                .find("does not fit int32"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(fill({"X", "avoid"}, {make_arg("max", 9)}),
                        {{"X", normal<float>({2})}, {"avoid", Tensor::of<int32_t>({1, 1}, {3})}});
            }).find("avoid must have one dimension, but is [1, 1]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::unique_uniform_fill_test
