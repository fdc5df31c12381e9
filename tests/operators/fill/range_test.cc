// Range and RangeFill.
#include <cmath>
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::range_test {
namespace {

template <class T>
Tensor range(const std::vector<T>& bounds) {
  std::vector<std::string> names;
  Feeds feeds;
  for (size_t i = 0; i < bounds.size(); ++i) {
    names.push_back(fmt::format("x{}", i));
    feeds.emplace_back(names.back(), Tensor::scalar<T>(bounds[i]));
  }
  return run_op_on(make_op("Range", names, {"Y"}), feeds)[0];
}

template <class T>
class Ranges : public ::testing::Test {};
using Types = ::testing::Types<float, double, int32_t, int64_t>;
TYPED_TEST_SUITE(Ranges, Types);

TYPED_TEST(Ranges, CountUpAndDown) {
  using T = TypeParam;
  EXPECT_EQ(range<T>({3}).dtype(), dtype_of<T>());
  EXPECT_EQ(compare(range<T>({3}), Tensor::of<T>({3}, {0, 1, 2}), 0), "");
  EXPECT_EQ(compare(range<T>({-2, 1}), Tensor::of<T>({3}, {-2, -1, 0}), 0), "");
  EXPECT_EQ(compare(range<T>({1, 8, 3}), Tensor::of<T>({3}, {1, 4, 7}), 0), "");
  EXPECT_EQ(compare(range<T>({1, 7, 3}), Tensor::of<T>({2}, {1, 4}), 0), "");
  EXPECT_EQ(compare(range<T>({2, -3, -2}), Tensor::of<T>({3}, {2, 0, -2}), 0), "");
}

TYPED_TEST(Ranges, OfNothing) {
  using T = TypeParam;
  const std::vector<std::vector<T>> nothing = {{0}, {-1}, {2, 2}, {3, 2}, {2, 3, -1}, {2, 2, -1}};
  for (const std::vector<T>& bounds : nothing) EXPECT_EQ(range<T>(bounds).shape(), Shape({0}));
}

TYPED_TEST(Ranges, StepZeroIsAnError) {
  EXPECT_NE(error_of([] {
              range<TypeParam>({1, 2, 0});
            }).find("step is 0, so that 2 is never reached from 1"),
            std::string::npos);
}

TEST(Range, OfFractions) {
  EXPECT_EQ(compare(range<double>({0.5, 2.0, 0.5}), Tensor::of<double>({3}, {0.5, 1, 1.5}), 0), "");
  EXPECT_EQ(compare(range<float>({0, 1, 0.4f}), Tensor::of<float>({3}, {0, 0.4f, 0.8f}), 1e-7), "");
}

TEST(Range, OfTheLargestIntegers) {
  const int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  const Tensor steps = range<int64_t>({least, most, int64_t{1} << 62});
  EXPECT_EQ(std::vector<int64_t>(steps.data<int64_t>(), steps.data<int64_t>() + 4),
            (std::vector<int64_t>{least, -(int64_t{1} << 62), 0, int64_t{1} << 62}));
  const Tensor down = range<int64_t>({most, least, least});
  EXPECT_EQ(std::vector<int64_t>(down.data<int64_t>(), down.data<int64_t>() + 2), (std::vector<int64_t>{most, -1}));
  EXPECT_NE(error_of([&] { range<int64_t>({least, most}); }).find("there are too many steps of 1"), std::string::npos);
}

TEST(Range, Errors) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_NE(error_of([&] { range<double>({infinity}); }).find("there are too many steps"), std::string::npos);
  EXPECT_NE(error_of([&] { range<double>({std::nan("")}); }).find("there are too many steps"), std::string::npos);
  EXPECT_NE(error_of([&] { range<double>({1, 2, 3, 4}); }).find("not 4 inputs"), std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(make_op("Range", {"X"}, {"Y"}), {{"X", normal<float>({2})}});
            }).find("input 0 must be one value, but is [2]"),
            std::string::npos);
}

TEST(RangeFill, CountsElements) {
  const auto def = make_op("RangeFill", {}, {"Y"}, {make_arg("shape", std::vector<int>{2, 3})});
  EXPECT_EQ(compare(run_op_on(def, {})[0], Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5}), 0), "");
  const auto like = make_op("RangeFill", {"X"}, {"Y"});
  EXPECT_EQ(compare(run_op_on(like, {{"X", normal<double>({2})}})[0], Tensor::of<float>({2}, {0, 1}), 0), "");
  EXPECT_EQ(run_op_on(like, {{"X", normal<double>({2, 0})}})[0].str(), "float[2, 0]");
}

}  // namespace
}  // namespace stepnet::testing::range_test
