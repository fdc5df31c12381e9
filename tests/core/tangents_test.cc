// Forward mode over nets.
#include <gtest/gtest.h>

#include "core/gradcheck/examples.h"
#include "stepnet/net.h"
#include "stepnet/op_spec.h"
#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::tangents_test {
namespace {

struct Moved {
  NetDef net;
  TangentResult result;
  Lines lines;
};

Moved move(const Lines& lines, const std::map<std::string, std::string>& given,
           const std::set<std::string>& wanted = {}) {
  Moved moved{net_of_lines(lines), {}, {}};
  moved.result = add_tangent_operators(moved.net, {.given = given, .wanted = wanted, .stop = {}});
  moved.lines = lines_of(moved.net);
  return moved;
}

TEST(Tangents, StandBesideTheOperators) {
  const Moved m = move({"a = Tanh(x)", "b = Sigmoid(w)", "y = Mul(a, b)"}, {{"x", ""}}, {"y"});
  const Lines expected = {"a = Tanh(x)",
                          "a_tangent = TanhGradient(a, x_tangent)",
                          "b = Sigmoid(w)",
                          "y = Mul(a, b)",
                          "y_tangent_part = MatchShape(a_tangent, y)",
                          "y_tangent_part_1 = Mul(y_tangent_part, b)",
                          "y_tangent = MatchShape(y_tangent_part_1, y)"};
  EXPECT_EQ(m.lines, expected);
  EXPECT_EQ(m.result.tangents.at("x"), "x_tangent");
  EXPECT_EQ(m.result.tangents.at("y"), "y_tangent");
}

TEST(Tangents, OfWhatIsNotNeededAreLeftOut) {
  const Moved m = move({"a = Tanh(x)", "b = Sigmoid(x)", "y = Negative(b)"}, {{"x", "v"}}, {"y"});
  for (const std::string& line : m.lines) EXPECT_EQ(line.find("a_tangent"), line.npos) << line;
}

TEST(Tangents, OfAConstantAreNone) {
  const Moved m = move({"a = Tanh(x)", "y = Sigmoid(w)"}, {{"x", ""}}, {"y"});
  EXPECT_EQ(m.result.tangents.count("y"), 0);
  EXPECT_EQ(m.lines, (Lines{"a = Tanh(x)", "y = Sigmoid(w)"}));
}

TEST(Tangents, ComeBeforeWhatOverwritesTheirInputs) {
  const Moved m = move({"x = Sin(x)", "y = Tanh(x)"}, {{"x", "v"}}, {"y"});
  const auto sine = std::ranges::find(m.lines, "x = Sin(x)");
  ASSERT_NE(sine, m.lines.end());
  EXPECT_GT(sine - m.lines.begin(), 0);
  for (auto line = sine + 1; line != m.lines.end(); ++line) EXPECT_EQ(line->find("(x,"), line->npos) << *line;
}

TEST(Tangents, GoRoundStopGradient) {
  const Moved m = move({"s = StopGradient(x)", "y = Mul(s, x)"}, {{"x", "v"}}, {"y"});
  const Lines expected = {"s = StopGradient(x)", "y = Mul(s, x)", "y_tangent_part = MatchShape(v, y)",
                          "y_tangent_part_1 = Mul(y_tangent_part, s)", "y_tangent = MatchShape(y_tangent_part_1, y)"};
  EXPECT_EQ(m.lines, expected);
}

TEST(Tangents, MistakesAreSaid) {
  expect_contains(error_text([] { move({"y = Tanh(x)"}, {{"z", ""}}); }), "no blob \"z\"");
  expect_contains(error_text([] { move({"y = Tanh(x)"}, {{"x", ""}}, {"q"}); }), "no blob \"q\"");
}

TEST(Tangents, MustNotBeWhatTheNetWrites) {
  expect_contains(error_text([] { move({"v = Tanh(x)", "y = Mul(v, x)"}, {{"x", "v"}}); }), "which the net writes");
  expect_contains(error_text([] { move({"y = Mul(a, b)"}, {{"a", "v"}, {"b", "v"}}); }), "tangent of two blobs");
}

// The value before the last write is not the only one that a name may show.
TEST(Tangents, OfStoragesWrittenSeveralTimesAreRefused) {
  const Lines lines = {"s = Sigmoid(x)", "y = MatchShape(x, l)", "y = StopGradient(y)", "y = Relu(y)",
                       "y = Relu(y)",    "t = Tanh(x)",          "o = Add(s, t)"};
  expect_contains(error_text([&] { move(lines, {{"x", "v"}}, {"o"}); }), "overwritten under another name");
  expect_contains(error_text([&] { differentiate(lines, {{"o", "g"}}, {"x"}); }), "overwritten under another name");
}

TEST(Tangents, OfWhatIsOverwrittenByAConstantAreNone) {
  const Moved m = move({"y = Tanh(x)", "x = ConstantFill()"}, {{"x", "v"}}, {"x", "y"});
  EXPECT_EQ(m.result.tangents.count("x"), 0);
  EXPECT_EQ(m.result.tangents.count("y"), 1);
}

// Along random directions of each input, forward mode is reverse mode and what differences are.
class TangentsOf : public ::testing::TestWithParam<std::string> {};

TEST_P(TangentsOf, Examples) {
  const OpSpec& spec = op_spec(GetParam());
  for (size_t i = 0; i < spec.examples.size(); ++i) {
    SCOPED_TRACE(fmt::format("example {}", i + 1));
    GradientCheckOptions options;
    options.forward = true;
    options.order = 2;
    options.where_possible = true;
    const GradientReport report = check_example(spec, spec.examples[i], options);
    EXPECT_EQ(report.str(), "");
    const bool has_none = spec.type == "Recurrent" || spec.type == "SyncBatchNorm" || spec.type == "SyncSpatialBN";
    EXPECT_TRUE(report.refused.empty() || has_none) << report.refused.begin()->second;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Operators, TangentsOf, ::testing::ValuesIn(op_types()), name_of);

}  // namespace
}  // namespace stepnet::testing::tangents_test
