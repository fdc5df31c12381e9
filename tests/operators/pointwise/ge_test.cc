// GE against the comparison of numbers, with every kind of broadcasting.
#include <limits>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::ge_test {
namespace {

double holds(double a, double b) { return a >= b ? 1 : 0; }

TEST(GE, EveryTypeAndBroadcasting) {
  EXPECT_EQ(check_predicate<float>("GE", holds), "");
  EXPECT_EQ(check_predicate<double>("GE", holds), "");
  EXPECT_EQ(check_predicate<int32_t>("GE", holds), "");
  EXPECT_EQ(check_predicate<int64_t>("GE", holds), "");
}

TEST(GE, NotANumber) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Feeds feeds = {{"A", Tensor::of<float>({5}, {1, 1, 2, nan, nan})},
                       {"B", Tensor::of<float>({5}, {1, 2, 1, 1, nan})}};
  EXPECT_EQ(compare(run_op_on(make_op("GE", {"A", "B"}, {"C"}), feeds)[0],
                    Tensor::of<bool>({5}, {true, false, true, false, false}), 0),
            "");
}

TEST(GE, CannotBeInPlace) {
  const Feeds feeds = {{"A", normal<float>({2})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("GE", {"A", "B"}, {"A"}), feeds);
            }).find("output \"C\" cannot have the name of the input \"A\""),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::ge_test
