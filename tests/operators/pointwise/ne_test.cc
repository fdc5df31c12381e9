// NE against the comparison of numbers, with every kind of broadcasting.
#include <limits>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::ne_test {
namespace {

double holds(double a, double b) { return a != b ? 1 : 0; }

TEST(NE, EveryTypeAndBroadcasting) {
  EXPECT_EQ(check_predicate<float>("NE", holds), "");
  EXPECT_EQ(check_predicate<double>("NE", holds), "");
  EXPECT_EQ(check_predicate<int32_t>("NE", holds), "");
  EXPECT_EQ(check_predicate<int64_t>("NE", holds), "");
  EXPECT_EQ(check_predicate<bool>("NE", holds, 0, 1), "");
}

TEST(NE, NotANumber) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Feeds feeds = {{"A", Tensor::of<float>({5}, {1, 1, 2, nan, nan})},
                       {"B", Tensor::of<float>({5}, {1, 2, 1, 1, nan})}};
  EXPECT_EQ(compare(run_op_on(make_op("NE", {"A", "B"}, {"C"}), feeds)[0],
                    Tensor::of<bool>({5}, {false, true, true, true, true}), 0),
            "");
}

TEST(NE, CannotBeInPlace) {
  const Feeds feeds = {{"A", normal<float>({2})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("NE", {"A", "B"}, {"A"}), feeds);
            }).find("output \"C\" cannot have the name of the input \"A\""),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::ne_test
