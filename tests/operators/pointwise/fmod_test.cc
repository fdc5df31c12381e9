// FMod and TruncDiv against std::fmod and central differences, with every kind of broadcasting.
#include <cmath>
#include <limits>

#include "tests/operators/elementwise_check.h"
#include "tests/operators/gradient_reads.h"

namespace stepnet::testing::fmod_test {
namespace {

OperatorDef fmod_op(const std::vector<Argument>& args = {}, const char* output = "C") {
  return make_op("FMod", {"A", "B"}, {output}, args);
}

double remainder_of(double a, double b) { return std::fmod(a, b); }

// No quotient is near a whole number, where FMod jumps.
TEST(FMod, ValuesAndGradients) {
  for (const BroadcastCase& shapes : broadcast_cases()) {
    const Feeds feeds = {{"A", uniform<double>(shapes.a, -9, 9, 5)}, {"B", uniform<double>(shapes.b, 1, 3, 6)}};
    const OperatorDef def = fmod_op(shapes.args);
    EXPECT_EQ(compare(run_op_on(def, feeds)[0], combined(shapes, feeds[0].second, feeds[1].second, remainder_of), 0),
              "");
    EXPECT_EQ(check_gradient(def, feeds, {"A", "B"}), "") << shapes.c.str();
  }
}

TEST(FMod, FloatsAndTheSignOfA) {
  const Feeds feeds = {{"A", Tensor::of<float>({5}, {5.5F, -5.5F, 5.5F, -5.5F, 1})},
                       {"B", Tensor::of<float>({5}, {2, 2, -2, -2, 0})}};
  const Tensor c = run_op_on(fmod_op(), feeds)[0];
  EXPECT_EQ(compare(c.rows(0, 4), Tensor::of<float>({4}, {1.5F, -1.5F, 1.5F, -1.5F}), 0), "");
  EXPECT_TRUE(std::isnan(c.data<float>()[4]));
}

TEST(FMod, Integers) {
  const int32_t least = std::numeric_limits<int32_t>::min();
  const Feeds feeds = {{"A", Tensor::of<int32_t>({4}, {7, -7, least, least})},
                       {"B", Tensor::of<int32_t>({4}, {3, 3, -1, 5})}};
  EXPECT_EQ(compare(run_op_on(fmod_op(), feeds)[0], Tensor::of<int32_t>({4}, {1, -1, 0, least % 5}), 0), "");
  const Feeds zero = {{"A", Tensor::of<int64_t>({1}, {7})}, {"B", Tensor::of<int64_t>({1}, {0})}};
  EXPECT_NE(error_of([&] { run_op_on(fmod_op(), zero); }).find("B has a 0, by which integers cannot be divided"),
            std::string::npos);
}

TEST(FMod, OnlyTheDivisorsGradientReadsTheInputs) {
  EXPECT_EQ(gradient_reads(fmod_op(), "A"), "");
  EXPECT_EQ(gradient_reads(fmod_op(), "B"), "A B");
}

TEST(FMod, InPlaceLosesWhatTheDivisorsGradientReads) {
  const Feeds feeds = {{"A", uniform<double>({6}, -9, 9, 5)}, {"B", uniform<double>({6}, 1, 3, 6)}};
  const Tensor apart = run_op_on(fmod_op(), feeds)[0];
  for (const char* output : {"A", "B"}) {
    EXPECT_EQ(compare(run_op_on(fmod_op({}, output), feeds)[0], apart, 0), "");
    EXPECT_EQ(check_gradient(fmod_op({}, output), feeds, {"A"}), "");
    EXPECT_NE(error_of([&] {
                check_gradient(fmod_op({}, output), feeds, {"B"});
              }).find("is overwritten in place, but the gradient of \"B\" is computed from it"),
              std::string::npos);
  }
}

TEST(FMod, BadShapesAreNamed) {
  EXPECT_NE(error_of([] {
              run_op_on(fmod_op(), {{"A", normal<float>({2, 3})}, {"B", normal<float>({3})}});
            }).find("A is [2, 3] and B [3]; without the argument broadcast: 1 they must have one shape"),
            std::string::npos);
}

// 0.3 / 0.1 is rounded up to 3, but twice 0.1 goes into 0.3 as it is in binary.
TEST(TruncDiv, GoesWithTheRemainder) {
  const Feeds feeds = {{"A", Tensor::of<double>({4}, {0.3, 7, -7, 1e15})},
                       {"B", Tensor::of<double>({4}, {0.1, 2, 2, 3})}};
  const Tensor whole = run_op_on(make_op("TruncDiv", {"A", "B"}, {"C"}), feeds)[0];
  EXPECT_EQ(compare(whole, Tensor::of<double>({4}, {2, 3, -3, 333333333333333}), 0), "");
  EXPECT_EQ(op_spec("TruncDiv").gradient_rule, GradientRule::stop);
}

}  // namespace
}  // namespace stepnet::testing::fmod_test
