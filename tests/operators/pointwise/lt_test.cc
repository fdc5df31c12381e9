// LT against the comparison of numbers, with every kind of broadcasting.
#include <limits>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::lt_test {
namespace {

double holds(double a, double b) { return a < b ? 1 : 0; }

TEST(LT, EveryTypeAndBroadcasting) {
  EXPECT_EQ(check_predicate<float>("LT", holds), "");
  EXPECT_EQ(check_predicate<double>("LT", holds), "");
  EXPECT_EQ(check_predicate<int32_t>("LT", holds), "");
  EXPECT_EQ(check_predicate<int64_t>("LT", holds), "");
}

TEST(LT, NotANumber) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Feeds feeds = {{"A", Tensor::of<float>({5}, {1, 1, 2, nan, nan})},
                       {"B", Tensor::of<float>({5}, {1, 2, 1, 1, nan})}};
  EXPECT_EQ(compare(run_op_on(make_op("LT", {"A", "B"}, {"C"}), feeds)[0],
                    Tensor::of<bool>({5}, {false, true, false, false, false}), 0),
            "");
}

TEST(LT, CannotBeInPlace) {
  const Feeds feeds = {{"A", normal<float>({2})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("LT", {"A", "B"}, {"A"}), feeds);
            }).find("output \"C\" cannot have the name of the input \"A\""),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::lt_test
