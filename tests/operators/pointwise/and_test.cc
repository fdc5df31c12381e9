// And against the truth table, with every kind of broadcasting.
#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::and_test {
namespace {

double holds(double a, double b) { return a != 0 && b != 0 ? 1 : 0; }

TEST(And, TruthTableAndBroadcasting) { EXPECT_EQ(check_predicate<bool>("And", holds, 0, 1), ""); }

TEST(And, InPlaceOfEither) {
  const Feeds feeds = {{"A", Tensor::of<bool>({4}, {false, false, true, true})},
                       {"B", Tensor::of<bool>({4}, {false, true, false, true})}};
  const Tensor apart = run_op_on(make_op("And", {"A", "B"}, {"C"}), feeds)[0];
  for (const char* onto : {"A", "B"})
    EXPECT_EQ(compare(run_op_on(make_op("And", {"A", "B"}, {onto}), feeds)[0], apart, 0), "") << onto;
}

TEST(And, NumbersAreNoBools) {
  const Feeds feeds = {{"A", normal<float>({2})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("And", {"A", "B"}, {"C"}), feeds);
            }).find("there is no kernel for elements of type float; there are kernels for bool"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::and_test
