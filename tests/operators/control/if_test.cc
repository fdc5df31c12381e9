// If: the branch that the condition names, on the same workspace.
#include "stepnet/gradients.h"
#include "stepnet/text.h"
#include "tests/operators/db_test.h"

namespace stepnet::testing::if_test {
namespace {

NetDef net_of(const std::string& text) { return parse_net_text(text, "test"); }

const std::string kBoth = R"(
  name: 'outer'
  op { type: 'If' input: 'C' input: 'X' output: 'Y'
       arg { name: 'then_net' n { op { type: 'Sqr' input: 'X' output: 'Y' } } }
       arg { name: 'else_net' n { op { type: 'Negative' input: 'X' output: 'Y' } } } })";

class If : public ::testing::Test {
 protected:
  If() {
    w_.tensor("X") = Tensor::of<float>({3}, {1, -2, 3});
    set(true);
  }
  void set(bool condition) { w_.tensor("C") = Tensor::of<bool>({1}, {condition}); }
  std::vector<float> floats(const std::string& name) { return floats_of(w_.fetch(name)); }
  std::string error(const std::string& text) {
    return error_text([&] { run_net_once(net_of(text), w_, run_); });
  }
  using Floats = std::vector<float>;

  Workspace w_;
  RunContext run_;
};

TEST_F(If, TakesOneBranch) {
  Net net(net_of(kBoth), w_);
  net.run(run_);
  EXPECT_EQ(floats("Y"), (Floats{1, 4, 9}));
  set(false);
  net.run(run_);
  EXPECT_EQ(floats("Y"), (Floats{-1, 2, -3}));
  set(true);
  net.run(run_);
  EXPECT_EQ(floats("Y"), (Floats{1, 4, 9}));
  EXPECT_EQ(net.runs(), 3);
}

TEST_F(If, WithoutElseNothingHappens) {
  set(false);
  Net net(net_of("op { type: 'If' input: 'C' input: 'X' output: 'X' arg { name: 'then_net' n { op { type: 'Sqr' "
                 "input: 'X' output: 'X' } } } }"),
          w_);
  net.run(run_);
  EXPECT_EQ(floats("X"), (Floats{1, -2, 3}));
  set(true);
  net.run(run_);
  net.run(run_);
  EXPECT_EQ(floats("X"), (Floats{1, 16, 81}));
}

TEST_F(If, NetsAsTextAndNested) {
  run_net_once(net_of(R"(
    op { type: 'If' input: 'C' input: 'X' output: 'Y' arg { name: 'then_net' s:
      "op { type: 'Not' input: 'C' output: 'D' }"
      "op { type: 'If' input: 'D' input: 'X' output: 'Y'"
      "     arg { name: 'then_net' n { op { type: 'Sqr' input: 'X' output: 'Y' } } }"
      "     arg { name: 'else_net' n { op { type: 'Abs' input: 'X' output: 'Y' } } } }" } })"),
               w_, run_);
  EXPECT_EQ(floats("Y"), (Floats{1, 2, 3}));
}

TEST_F(If, OutputsStandInPlaceOfAnyInput) {
  w_.tensor("W") = Tensor::of<float>({3}, {2, 2, 2});
  run_net_once(net_of("op { type: 'If' input: 'C' input: 'X' input: 'W' output: 'W' output: 'C' arg { name: 'then_net' "
                      "n { op { type: 'Mul' input: 'W' input: 'X' output: 'W' } "
                      "op { type: 'Not' input: 'C' output: 'C' } } } }"),
               w_, run_);
  EXPECT_EQ(floats("W"), (Floats{2, -4, 6}));
  EXPECT_FALSE(w_.fetch("C").item<bool>());
}

TEST_F(If, DrawsAnewInEachRun) {
  const NetDef def = net_of(
      "op { type: 'If' input: 'C' output: 'Z' arg { name: 'then_net' n { op { type: 'UniformFill' output: 'Z' "
      "arg { name: 'shape' ints: 3 } } } } }");
  Net net(def, w_);
  net.run(run_);
  const Floats first = floats("Z");
  net.run(run_);
  const Floats second = floats("Z");
  EXPECT_NE(first, second);
  Net resumed(def, w_);
  resumed.set_runs(1);
  resumed.run(run_);
  EXPECT_EQ(floats("Z"), second);
}

TEST_F(If, ABranchThatIsNotTakenTouchesNoFile) {
  set(false);
  const std::string save =
      "op { type: 'If' input: 'C' input: 'X' arg { name: 'then_net' n { op { type: 'Save' input: 'X' arg { name: 'db' "
      "s: 'no_such_folder/x' } arg { name: 'db_type' s: 'minidb' } } } } }";
  run_net_once(net_of(save), w_, run_);
  set(true);
  expect_contains(error(save), "no_such_folder cannot be used");
}

TEST_F(If, MistakesAreSaidBeforehand) {
  const auto with = [](const std::string& then) {
    return "op { type: 'If' input: 'C' input: 'X' output: 'Y' arg { name: 'then_net' " + then + " } }";
  };
  expect_contains(error("op { type: 'If' input: 'C' }"), "then_net");
  expect_contains(error(with("s: ''")), "argument \"then_net\" holds no net");
  expect_contains(error(with("n { op { type: 'Sqrr' input: 'X' output: 'Y' } }")), "Sqrr");
  set(false);
  const std::string mistake = error(with("n { op { type: 'Sqr' input: 'X' input: 'X' output: 'Y' } }"));
  expect_contains(mistake, "Sqr");
  expect_contains(mistake, "the then_net");
}

TEST_F(If, TheConditionIsOneBool) {
  w_.tensor("C") = Tensor::of<float>({1}, {1});
  expect_contains(error(kBoth), "\"C\" must be one bool, but holds float[1]");
  w_.tensor("C") = Tensor::of<bool>({2}, {true, true});
  expect_contains(error(kBoth), "\"C\" must be one bool, but holds bool[2]");
  w_.at("C").clear();
  expect_contains(error(kBoth), "\"C\" must be one bool, but holds nothing");
  w_.at("C").emplace<std::string>("yes");
  expect_contains(error(kBoth), "\"C\" must be one bool");
}

TEST_F(If, ErrorsInsideNameThePlace) {
  w_.tensor("X") = Tensor::of<int32_t>({1}, {1});
  const std::string text = error(kBoth);
  expect_contains(text, "operator 0 of net \"then_net\"");
  expect_contains(text, "the then_net of If");
}

TEST_F(If, AValueThatTheNetAroundHasLetGoOfIsNamed) {
  const NetDef def = net_of(R"(
    external_input: 'C' external_input: 'X' external_output: 'Z'
    op { type: 'Sqr' input: 'X' output: 'S' }
    op { type: 'Abs' input: 'S' output: 'T' }
    op { type: 'If' input: 'C' output: 'Z' arg { name: 'then_net' n { op { type: 'Abs' input: 'S' output: 'Z' } } } })");
  Net net(def, w_, {.release_intermediates = true});
  const std::string text = error_text([&] { net.run(run_); });
  expect_contains(text, "the then_net reads \"S\", which the net around has let go of");
  expect_contains(text, "name it among the operator's inputs");
}

TEST_F(If, AnOutputThatNobodyWroteAgainIsNotRead) {
  const NetDef def = net_of(R"(
    external_input: 'C' external_input: 'X' external_output: 'Z'
    op { type: 'If' input: 'C' input: 'X' output: 'Y'
         arg { name: 'then_net' n { op { type: 'Sqr' input: 'X' output: 'Y' } } } }
    op { type: 'Abs' input: 'Y' output: 'Z' })");
  Net net(def, w_, {.release_intermediates = true});
  net.run(run_);
  EXPECT_EQ(floats("Z"), (Floats{1, 4, 9}));
  set(false);
  expect_contains(error_text([&] { net.run(run_); }), "the input \"Y\" holds nothing yet");
}

TEST_F(If, HasNoGradient) {
  NetDef net = net_of(kBoth);
  const GradientRequest request{.targets = {{"Y", ""}}, .wanted = {"X"}, .stop = {}};
  expect_contains(error_text([&] { add_gradient_operators(net, request); }), "known only when it runs");
}

}  // namespace
}  // namespace stepnet::testing::if_test
