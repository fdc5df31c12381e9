// Div against plain loops and central differences, with every kind of broadcasting.
#include <limits>

#include "tests/operators/elementwise_check.h"
#include "tests/operators/gradient_reads.h"

namespace stepnet::testing::div_test {
namespace {

OperatorDef div_op(const std::vector<Argument>& args = {}, const char* output = "C") {
  return make_op("Div", {"A", "B"}, {output}, args);
}

double quotient(double a, double b) { return a / b; }

TEST(Div, ValuesAndGradients) {
  for (const BroadcastCase& shapes : broadcast_cases()) {
    const Feeds feeds = {{"A", normal<double>(shapes.a, 1)}, {"B", uniform<double>(shapes.b, 0.5, 2, 2)}};
    const Tensor expected = combined(shapes, feeds[0].second, feeds[1].second, quotient);
    EXPECT_EQ(compare(run_op_on(div_op(shapes.args), feeds)[0], expected, 0), "") << shapes.b.str();
    EXPECT_EQ(check_gradient(div_op(shapes.args), feeds, {"A", "B"}), "") << shapes.b.str();
  }
}

TEST(Div, IntegersAreTruncated) {
  constexpr int32_t least = std::numeric_limits<int32_t>::min();
  const Feeds feeds = {{"A", Tensor::of<int32_t>({4}, {7, -7, 9, least})},
                       {"B", Tensor::of<int32_t>({4}, {2, 2, -3, -1})}};
  EXPECT_EQ(compare(run_op_on(div_op(), feeds)[0], Tensor::of<int32_t>({4}, {3, -3, -3, least}), 0), "");
}

TEST(Div, IntegersCannotBeDividedByZero) {
  const Feeds feeds = {{"A", Tensor::of<int64_t>({2}, {1, 2})}, {"B", Tensor::of<int64_t>({2}, {1, 0})}};
  EXPECT_NE(error_of([&] { run_op_on(div_op(), feeds); }).find("B has a 0, by which integers cannot be divided"),
            std::string::npos);
}

TEST(Div, InPlaceOfWhatTheGradientDoesNotRead) {
  const Feeds feeds = {{"A", normal<double>({2, 3}, 1)}, {"B", uniform<double>({2, 3}, 0.5, 2, 2)}};
  const Tensor apart = run_op_on(div_op(), feeds)[0];
  EXPECT_EQ(compare(run_op_on(div_op({}, "A"), feeds)[0], apart, 0), "");
  EXPECT_EQ(compare(run_op_on(div_op({}, "B"), feeds)[0], apart, 0), "");
  EXPECT_EQ(check_gradient(div_op({}, "A"), feeds, {"A", "B"}), "");
  for (const char* wanted : {"A", "B"})
    EXPECT_NE(error_of([&] {
                check_gradient(div_op({}, "B"), feeds, {wanted});
              }).find("\"B\" is overwritten in place, but the gradient of"),
              std::string::npos);
}

TEST(Div, BadShapesAreNamed) {
  const Feeds feeds = {{"A", normal<float>({2, 3})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(div_op(), feeds);
            }).find("A is [2, 3] and B [2]; without the argument broadcast: 1 they must have one shape"),
            std::string::npos);
}

TEST(Div, NoGradientReadsTheDividend) {
  const OperatorDef def = make_op("Div", {"A", "B"}, {"C"});
  EXPECT_EQ(gradient_reads(def, "A"), "B");
  EXPECT_EQ(gradient_reads(def, "B"), "B C");
}

}  // namespace
}  // namespace stepnet::testing::div_test
