// Where a net's derivatives are wrong, the operators that are to blame are named, and no others.
#include "core/gradcheck/blame.h"

#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::blame_test {
namespace {

using Paths = std::vector<std::string>;

GradientSubject subject_of(const std::string& text, const Feeds& feeds, const std::string& output) {
  GradientSubject subject{parse_net_text(text), {feeds.begin(), feeds.end()}, {output}, {}, {}, {}};
  expand_recurrent(subject.net);
  for (const auto& [name, value] : feeds)
    if (value.dtype() == DType::float64) subject.inputs.push_back(name);
  return subject;
}

Paths blamed_of(const GradientReport& report) {
  Paths paths;
  for (const BlamedOperator& op : report.blamed) paths.push_back(op.path);
  return paths;
}

std::string cube_of(const std::string& in, const std::string& out, const std::string& mistake) {
  return fmt::format("op {{ type: 'PlantedCube' input: '{}' output: '{}' arg {{ name: 'mistake' s: '{}' }} }}", in, out,
                     mistake);
}

std::string op_text(const std::string& type, const Paths& in, const std::string& out) {
  std::string text = fmt::format("op {{ type: '{}'", type);
  for (const std::string& name : in) text += fmt::format(" input: '{}'", name);
  return text + fmt::format(" output: '{}' }}", out);
}

Feeds one() { return {{"x", uniform<double>({2, 3}, 0.5, 2)}}; }

std::string chain(const std::string& mistake) {
  return op_text("Tanh", {"x"}, "a") + cube_of("a", "b", mistake) + op_text("Mul", {"b", "a"}, "c") +
         cube_of("c", "d", "") + op_text("Sigmoid", {"d"}, "y");
}

TEST(Blame, NobodyWhereAllIsRight) {
  const GradientReport report = check_gradients(subject_of(chain(""), one(), "y"));
  EXPECT_EQ(report.str(), "");
  EXPECT_FALSE(report.searched);
}

TEST(Blame, NamesTheOperatorOfANet) {
  for (const char* mistake : {"sign", "factor", "element", "leaves", "adds"}) {
    const GradientReport report = check_gradients(subject_of(chain(mistake), one(), "y"));
    EXPECT_TRUE(report.searched);
    EXPECT_EQ(blamed_of(report), Paths{"op 1 (PlantedCube) \"b\""}) << report.str();
    EXPECT_EQ(report.blamed.at(0).type, "PlantedCube");
    expect_contains(report.str(), "op 1 (PlantedCube) \"b\" is wrong alone: ");
  }
}

TEST(Blame, CallsAnOperatorByItsName) {
  std::string text = chain("sign");
  text.replace(text.find("input: 'a' output: 'b'"), 0, "name: 'third power' ");
  EXPECT_EQ(blamed_of(check_gradients(subject_of(text, one(), "y"))), Paths{"op 1 (PlantedCube) \"third power\""});
}

TEST(Blame, NamesSeveral) {
  const std::string text = cube_of("x", "a", "sign") + op_text("Tanh", {"a"}, "b") + cube_of("b", "y", "factor");
  const Paths expected = {"op 0 (PlantedCube) \"a\"", "op 2 (PlantedCube) \"y\""};
  EXPECT_EQ(blamed_of(check_gradients(subject_of(text, one(), "y"))), expected);
}

TEST(Blame, OfHigherOrdersAndForwardMode) {
  GradientCheckOptions options;
  options.order = 2;
  const Paths expected = {"op 1 (PlantedCube) \"b\""};
  EXPECT_EQ(blamed_of(check_gradients(subject_of(chain("second"), one(), "y"), options)), expected);
  options.order = 3;
  EXPECT_EQ(blamed_of(check_gradients(subject_of(chain("third"), one(), "y"), options)), expected);
  options.order = 1;
  options.forward = true;
  EXPECT_EQ(blamed_of(check_gradients(subject_of(chain("factor"), one(), "y"), options)), expected);
  options = {};
  options.hessian = true;
  EXPECT_EQ(blamed_of(check_gradients(subject_of(chain("second"), one(), "y"), options)), expected);
}

TEST(Blame, OfAReadThatIsNotDeclared) {
  const std::string text =
      op_text("Negative", {"x"}, "a") + op_text("PlantedPeek", {"a"}, "b") + op_text("Sin", {"b"}, "y");
  EXPECT_EQ(blamed_of(check_gradients(subject_of(text, one(), "y"))), Paths{"op 1 (PlantedPeek) \"b\""});
}

// What the results do not depend on is not tried, nor what does not depend on an input.
TEST(Blame, NotWhatDoesNotCount) {
  Feeds feeds = one();
  feeds.emplace_back("k", uniform<double>({2, 3}, 0.5, 2));
  GradientSubject subject = subject_of(cube_of("x", "unused", "sign") + cube_of("k", "constant", "sign") +
                                           cube_of("x", "a", "factor") + op_text("Mul", {"a", "constant"}, "y"),
                                       feeds, "y");
  subject.inputs = {"x"};
  EXPECT_EQ(blamed_of(check_gradients(subject)), Paths{"op 2 (PlantedCube) \"a\""});
}

TEST(Blame, WhereOperatorsWorkInPlaceAndReadABlobTwice) {
  const std::string text = op_text("Sigmoid", {"x"}, "x") + op_text("Mul", {"x", "x"}, "a") +
                           op_text("Tanh", {"a"}, "a") + cube_of("a", "b", "factor") + op_text("Tanh", {"b"}, "b") +
                           op_text("Negative", {"b"}, "y");
  const GradientReport report = check_gradients(subject_of(text, one(), "y"));
  EXPECT_EQ(blamed_of(report), Paths{"op 3 (PlantedCube) \"b\""}) << report.str();
  EXPECT_TRUE(report.unsearched.empty()) << report.str();
}

TEST(Blame, NobodyInANetOfOneOperator) {
  const GradientReport report = check_gradients(subject_of(cube_of("x", "y", "sign"), one(), "y"));
  EXPECT_FALSE(report.right());
  EXPECT_FALSE(report.searched);
}

TEST(Blame, SaysThatNoOperatorIsWrong) {
  const GradientSubject subject = subject_of(chain("sign"), one(), "y");
  GradientReport report;
  find_blamed(
      subject, {}, [](const auto&, const auto&) { return GradientReport(); }, report);
  EXPECT_TRUE(report.searched && report.blamed.empty());
  EXPECT_EQ(report.str(), "no operator is wrong alone, so it is how their derivatives are put together\n");
}

TEST(Blame, SaysWhatCannotBeCheckedAlone) {
  GradientReport report;
  const auto check = [](const GradientSubject& alone, const GradientCheckOptions&) -> GradientReport {
    if (alone.net.op(0).type() == "Mul") throw Error("of no use", "");
    return {};
  };
  find_blamed(subject_of(chain("sign"), one(), "y"), {}, check, report);
  ASSERT_EQ(report.unsearched.size(), 1);
  EXPECT_EQ(report.unsearched.begin()->first, "op 2 (Mul) \"c\"");
  expect_contains(report.str(), "op 2 (Mul) \"c\" cannot be checked alone: of no use\nno other operator");
}

// y = h h over h_t = W h_{t-1} + cube(tanh x_t).
std::string network(const std::string& mistake, const std::string& more = "") {
  return fmt::format(R"(
    op {{ type: 'Sin' input: 'X' output: 'S' }}
    op {{ type: 'RecurrentNetwork' name: 'rnn' input: 'S' input: 'h0' output: 'h_all'
         [stepnet.recurrent] {{
           step_net {{ name: 'step'
             op {{ type: 'Mul' input: 'h_prev' input: 'W' output: 'm' }}
             op {{ type: 'Tanh' input: 'x_t' output: 'q' }} {}
             op {{ type: 'Sum' input: 'm' input: 'c' output: 'h' }} }}
           sequence {{ outer: 'S' inner: 'x_t' }}
           state {{ input: 'h_prev' output: 'h' initial: 'h0' all: 'h_all' }} {} }} }}
    op {{ type: 'Mul' input: 'h_all' input: 'h_all' output: 'y' }})",
                     cube_of("q", "c", mistake), more);
}

Feeds network_feeds(int64_t steps = 3) {
  return {{"X", uniform<double>({steps, 2, 4}, 0.5, 1, 1)},
          {"h0", normal<double>({2, 4}, 2)},
          {"W", normal<double>({1, 2, 4}, 3)}};
}

TEST(Blame, NamesTheOperatorOfAStepNet) {
  const Paths expected = {"op 1 (RecurrentNetwork) \"rnn\", step net op 2 (PlantedCube) \"c\""};
  for (const char* more : {"", "reverse: true"})
    for (const int64_t steps : {1, 2, 5}) {
      const GradientReport report = check_gradients(subject_of(network("factor", more), network_feeds(steps), "y"));
      EXPECT_EQ(blamed_of(report), expected) << report.str();
      EXPECT_TRUE(report.unsearched.empty()) << report.str();
      expect_contains(report.str(), "is wrong alone: timestep ");
    }
  EXPECT_EQ(check_gradients(subject_of(network(""), network_feeds(), "y")).str(), "");
}

TEST(Blame, NamesTheOperatorOfAStepNetInSecondOrder) {
  GradientCheckOptions options;
  options.order = 2;
  const GradientReport report = check_gradients(subject_of(network("second"), network_feeds(), "y"), options);
  EXPECT_EQ(blamed_of(report), Paths{"op 1 (RecurrentNetwork) \"rnn\", step net op 2 (PlantedCube) \"c\""})
      << report.str();
}

TEST(Blame, WithLengthsOfSamples) {
  std::string text = network("sign", "lengths: 'L'");
  text.replace(text.find("input: 'h0'"), 0, "input: 'L' ");
  Feeds feeds = network_feeds();
  feeds.emplace_back("L", Tensor::of<int32_t>({2}, {3, 1}));
  const GradientReport report = check_gradients(subject_of(text, feeds, "y"));
  ASSERT_EQ(report.blamed.size(), 1) << report.str();
  EXPECT_EQ(report.blamed[0].type, "PlantedCube");
  EXPECT_TRUE(report.unsearched.empty()) << report.str();
}

// A network that is all of the net.
TEST(Blame, InTheOnlyOperatorOfANet) {
  std::string text = network("sign");
  text = text.substr(text.find("op { type: 'RecurrentNetwork'"));
  text.resize(text.rfind("op { type: 'Mul' input: 'h_all'"));
  Feeds feeds = network_feeds();
  feeds[0].first = "S";
  const GradientReport report = check_gradients(subject_of(text, feeds, "h_all"));
  EXPECT_EQ(blamed_of(report), Paths{"op 0 (RecurrentNetwork) \"rnn\", step net op 2 (PlantedCube) \"c\""})
      << report.str();
}

TEST(Blame, NamesTheOperatorOfANestedStepNet) {
  const std::string inner = fmt::format(R"(
    op {{ type: 'RecurrentNetwork' name: 'inner' input: 'Q' input: 'h_prev' output: 'g_all' output: 'g_last'
         [stepnet.recurrent] {{
           step_net {{ name: 'inner_step'
             op {{ type: 'Sum' input: 'g_prev' input: 'r_t' output: 's' }} {}
             op {{ type: 'Tanh' input: 'k' output: 'g' }} }}
           sequence {{ outer: 'Q' inner: 'r_t' }}
           state {{ input: 'g_prev' output: 'g' initial: 'h_prev' all: 'g_all' last: 'g_last' }} }} }})",
                                        cube_of("s", "k", "factor"));
  const std::string text = fmt::format(R"(
    op {{ type: 'RecurrentNetwork' name: 'outer' input: 'X' input: 'h0' input: 'Q' output: 'y'
         [stepnet.recurrent] {{
           step_net {{ name: 'step' {}
             op {{ type: 'Sum' input: 'g_last' input: 'x_t' output: 'h' }} }}
           sequence {{ outer: 'X' inner: 'x_t' }}
           state {{ input: 'h_prev' output: 'h' initial: 'h0' all: 'y' }} }} }})",
                                       inner);
  const Feeds feeds = {{"X", normal<double>({2, 2, 3}, 1)},
                       {"h0", normal<double>({2, 3}, 2)},
                       {"Q", uniform<double>({3, 2, 3}, 0.2, 0.5, 3)}};
  const GradientReport report = check_gradients(subject_of(text, feeds, "y"));
  ASSERT_EQ(report.blamed.size(), 1) << report.str();
  expect_contains(report.blamed[0].path, "op 0 (RecurrentNetwork) \"outer\", step net op ");
  expect_contains(report.blamed[0].path, " (RecurrentNetwork) \"inner\", step net op 1 (PlantedCube) \"k\"");
  EXPECT_TRUE(report.unsearched.empty()) << report.str();
  expect_contains(report.blamed[0].what, "timestep 0, timestep ");
}

}  // namespace
}  // namespace stepnet::testing::blame_test
