// And, Or, Xor and Not against the truth table, with every kind of broadcasting.
#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::logic_test {
namespace {

struct Connective {
  const char* type;
  double (*holds)(double, double);
};

const Connective kConnectives[] = {
    {"And", [](double a, double b) -> double { return a != 0 && b != 0; }},
    {"Or", [](double a, double b) -> double { return a != 0 || b != 0; }},
    {"Xor", [](double a, double b) -> double { return (a != 0) != (b != 0); }},
};

class Logic : public ::testing::TestWithParam<Connective> {};

TEST_P(Logic, TruthTableAndBroadcasting) {
  EXPECT_EQ(check_predicate<bool>(GetParam().type, GetParam().holds, 0, 1), "");
}

TEST_P(Logic, InPlaceOfEither) {
  const char* type = GetParam().type;
  const Feeds feeds = {{"A", Tensor::of<bool>({4}, {false, false, true, true})},
                       {"B", Tensor::of<bool>({4}, {false, true, false, true})}};
  const Tensor apart = run_op_on(make_op(type, {"A", "B"}, {"C"}), feeds)[0];
  for (const char* onto : {"A", "B"})
    EXPECT_EQ(compare(run_op_on(make_op(type, {"A", "B"}, {onto}), feeds)[0], apart, 0), "") << onto;
}

TEST_P(Logic, NumbersAreNoBools) {
  const Feeds feeds = {{"A", normal<float>({2})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op(GetParam().type, {"A", "B"}, {"C"}), feeds);
            }).find("there is no kernel for elements of type float; there are kernels for bool"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, Logic, ::testing::ValuesIn(kConnectives),
                         [](const auto& row) { return std::string(row.param.type); });

TEST(Not, ValuesAndInPlace) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{3, 5}}) {
    const Tensor x = integers<bool>(shape, 0, 1);
    const Tensor expected = mapped(x, [](double v) { return 1 - v; });
    for (const char* output : {"Y", "X"}) {
      const Tensor y = run_op_on(make_op("Not", {"X"}, {output}), {{"X", x}})[0];
      EXPECT_EQ(y.dtype(), DType::boolean);
      EXPECT_EQ(compare(y, expected, 0), "") << shape.str();
    }
  }
}

TEST(Not, NumbersAreNoBools) {
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Not", {"X"}, {"Y"}), {{"X", normal<float>({2})}});
            }).find("there is no kernel for elements of type float; there are kernels for bool"),
            std::string::npos);
}

TEST(Not, GradientsEnd) { EXPECT_EQ(op_spec("Not").gradient_rule, GradientRule::stop); }

}  // namespace
}  // namespace stepnet::testing::logic_test
