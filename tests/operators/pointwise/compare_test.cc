// EQ, NE, LT, LE, GT and GE against the comparison of numbers, with every kind of broadcasting.
#include <limits>

#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::compare_test {
namespace {

struct Comparison {
  const char* type;
  double (*holds)(double, double);
  std::vector<bool> of_special;  // 1 and 1, 1 and 2, 2 and 1, NaN and 1, NaN and NaN
  bool takes_bools = false;
};

const Comparison kComparisons[] = {
    {"EQ", [](double a, double b) -> double { return a == b; }, {true, false, false, false, false}, true},
    {"NE", [](double a, double b) -> double { return a != b; }, {false, true, true, true, true}, true},
    {"LT", [](double a, double b) -> double { return a < b; }, {false, true, false, false, false}},
    {"LE", [](double a, double b) -> double { return a <= b; }, {true, true, false, false, false}},
    {"GT", [](double a, double b) -> double { return a > b; }, {false, false, true, false, false}},
    {"GE", [](double a, double b) -> double { return a >= b; }, {true, false, true, false, false}},
};

class Compare : public ::testing::TestWithParam<Comparison> {};

TEST_P(Compare, EveryTypeAndBroadcasting) {
  const auto& [type, holds, of_special, takes_bools] = GetParam();
  EXPECT_EQ(check_predicate<float>(type, holds), "");
  EXPECT_EQ(check_predicate<double>(type, holds), "");
  EXPECT_EQ(check_predicate<int32_t>(type, holds), "");
  EXPECT_EQ(check_predicate<int64_t>(type, holds), "");
  if (takes_bools) {
    EXPECT_EQ(check_predicate<bool>(type, holds, 0, 1), "");
  } else {
    const OperatorDef op = make_op(type, {"A", "B"}, {"C"});
    const Feeds bools = {{"A", integers<bool>({2}, 0, 1)}, {"B", integers<bool>({2}, 0, 1)}};
    EXPECT_NE(error_of([&] { run_op_on(op, bools); }).find("there is no kernel for elements of type bool"),
              std::string::npos);
  }
}

TEST_P(Compare, NotANumber) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Feeds feeds = {{"A", Tensor::of<float>({5}, {1, 1, 2, nan, nan})},
                       {"B", Tensor::of<float>({5}, {1, 2, 1, 1, nan})}};
  const Tensor c = run_op_on(make_op(GetParam().type, {"A", "B"}, {"C"}), feeds)[0];
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(c.data<bool>()[i], GetParam().of_special[i]) << i;
}

TEST_P(Compare, CannotBeInPlace) {
  const Feeds feeds = {{"A", normal<float>({2})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op(GetParam().type, {"A", "B"}, {"A"}), feeds);
            }).find("output \"C\" cannot have the name of the input \"A\""),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, Compare, ::testing::ValuesIn(kComparisons),
                         [](const auto& row) { return std::string(row.param.type); });

}  // namespace
}  // namespace stepnet::testing::compare_test
