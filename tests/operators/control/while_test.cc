// While: as many rounds as the condition says, on the same workspace.
#include <set>
#include <sstream>

#include "stepnet/gradients.h"
#include "stepnet/text.h"
#include "tests/operators/db_test.h"

namespace stepnet::testing::while_test {
namespace {

NetDef net_of(const std::string& text) { return parse_net_text(text, "test"); }

// Doubles X while it is below the limit.
const std::string kWithConditionNet = R"(
  name: 'outer'
  op { type: 'While' input: 'C' input: 'X' input: 'limit' output: 'C' output: 'X'
       arg { name: 'cond_net' n { op { type: 'LT' input: 'X' input: 'limit' output: 'C' } } }
       arg { name: 'loop_net' n { op { type: 'Scale' input: 'X' output: 'X' arg { name: 'scale' f: 2 } } } } })";
const std::string kWithout = R"(
  op { type: 'While' input: 'C' input: 'X' input: 'limit' output: 'C' output: 'X'
       arg { name: 'loop_net' n { op { type: 'Scale' input: 'X' output: 'X' arg { name: 'scale' f: 2 } }
                                  op { type: 'LT' input: 'X' input: 'limit' output: 'C' } } } })";

class While : public ::testing::Test {
 protected:
  While() {
    feed(true, 3);
    w_.tensor("limit") = Tensor::of<float>({1}, {20});
  }
  void feed(bool condition, float x) {
    w_.tensor("C") = Tensor::of<bool>({1}, {condition});
    w_.tensor("X") = Tensor::of<float>({1}, {x});
  }
  float x() { return w_.fetch("X").item<float>(); }
  std::string error(const std::string& text) {
    return error_text([&] { run_net_once(net_of(text), w_, run_); });
  }
  Workspace w_;
  RunContext run_;
};

TEST_F(While, ConditionNetRunsFirst) {
  Net net(net_of(kWithConditionNet), w_);
  net.run(run_);
  EXPECT_EQ(x(), 24);
  EXPECT_FALSE(w_.fetch("C").item<bool>());
  feed(true, 21);
  net.run(run_);
  EXPECT_EQ(x(), 21);
  feed(false, 10);
  net.run(run_);
  EXPECT_EQ(x(), 20);
}

TEST_F(While, WithoutConditionNetTheConditionIsLookedAtFirst) {
  Net net(net_of(kWithout), w_);
  net.run(run_);
  EXPECT_EQ(x(), 24);
  feed(true, 21);
  net.run(run_);
  EXPECT_EQ(x(), 42);
  feed(false, 10);
  net.run(run_);
  EXPECT_EQ(x(), 10);
}

// The public format's own example: a While around an If.
TEST_F(While, HoldsAnIf) {
  w_.tensor("small") = Tensor::of<float>({1}, {10});
  w_.tensor("D") = Tensor::of<bool>({1}, {true});
  run_net_once(net_of(R"(
    op { type: 'While' input: 'C' input: 'X' input: 'limit' input: 'small' input: 'D' output: 'X'
         arg { name: 'cond_net' n { op { type: 'LT' input: 'X' input: 'limit' output: 'C' }
                                    op { type: 'LT' input: 'X' input: 'small' output: 'D' } } }
         arg { name: 'loop_net' n {
           op { type: 'If' input: 'D' input: 'X' output: 'X'
                arg { name: 'then_net' n { op { type: 'Sqr' input: 'X' output: 'X' } } }
                arg { name: 'else_net' n { op { type: 'Scale' input: 'X' output: 'X' arg { name: 'scale' f: 2 } } } } } } } })"),
               w_, run_);
  EXPECT_EQ(x(), 9 * 9);
}

// The values of Z in three rounds of each of two runs, as Print shows them.
std::string draws_of(int first_run, int runs) {
  Workspace w;
  w.tensor("C") = Tensor::of<bool>({1}, {true});
  w.tensor("limit") = Tensor::of<float>({1}, {3});
  Net net(net_of(R"(
    op { type: 'ConstantFill' output: 'n' arg { name: 'shape' ints: 1 } arg { name: 'value' f: 0 } }
    op { type: 'ConstantFill' output: 'one' arg { name: 'shape' ints: 1 } arg { name: 'value' f: 1 } }
    op { type: 'While' input: 'C' input: 'n' input: 'one' input: 'limit' output: 'C' output: 'n' output: 'Z'
         arg { name: 'cond_net' n { op { type: 'LT' input: 'n' input: 'limit' output: 'C' } } }
         arg { name: 'loop_net' n { op { type: 'UniformFill' output: 'Z' arg { name: 'shape' ints: 1 } }
                                    op { type: 'Print' input: 'Z' }
                                    op { type: 'Add' input: 'n' input: 'one' output: 'n' } } } })"),
          w);
  std::ostringstream printed;
  RunContext run;
  run.out = &printed;
  net.set_runs(first_run);
  for (int i = 0; i < runs; ++i) net.run(run);
  return printed.str();
}

TEST_F(While, DrawsAnewInEachRoundAndRun) {
  const std::string both = draws_of(0, 2);
  std::istringstream lines(both);
  std::set<std::string> seen;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) seen.insert(line);
  EXPECT_EQ(count, 6);
  EXPECT_EQ(seen.size(), 6U);
  EXPECT_EQ(draws_of(0, 1) + draws_of(1, 1), both);
}

TEST_F(While, ALoopThatCannotEndIsRefused) {
  expect_contains(error("op { type: 'While' input: 'C' input: 'X' output: 'X' arg { name: 'loop_net' n { op { type: "
                        "'Sqr' input: 'X' output: 'X' } } } }"),
                  "no operator of loop_net or cond_net writes the condition \"C\", so the loop could not end");
  expect_contains(error("op { type: 'While' input: 'C' arg { name: 'loop_net' n { } } }"), "could not end");
}

TEST_F(While, BadInputIsNamed) {
  expect_contains(error("op { type: 'While' input: 'C' }"), "loop_net");
  expect_contains(error("op { type: 'While' input: 'C' arg { name: 'loop_net' s: '' } }"),
                  "argument \"loop_net\" holds no net");
  w_.tensor("limit") = Tensor::of<int64_t>({1}, {20});
  expect_contains(error(kWithout), "the loop_net of While");
  w_.tensor("C") = Tensor::of<bool>({0}, {});
  expect_contains(error(kWithout), "\"C\" must be one bool, but holds bool[0]");
}

// What the net makes of the condition counts, also if it is no bool any more.
TEST_F(While, TheConditionIsCheckedInEachRound) {
  expect_contains(error("op { type: 'While' input: 'C' input: 'X' output: 'C' arg { name: 'loop_net' n { op { type: "
                        "'Copy' input: 'X' output: 'C' } } } }"),
                  "\"C\" must be one bool, but holds float[1]");
}

TEST_F(While, CannotStandInAStepNet) {
  Workspace w;
  w.tensor("X") = Tensor::of<float>({2, 1, 1}, {1, 2});
  w.tensor("h0") = Tensor::of<float>({1, 1}, {0});
  w.tensor("C") = Tensor::of<bool>({1}, {true});
  const NetDef def = net_of(R"(
    op { type: 'RecurrentNetwork' input: 'X' input: 'h0' input: 'C' output: 'h_all' output: 'steps'
         arg { name: 'step_net' n {
           external_input: 'x' external_input: 'h_prev' external_input: 'C' external_output: 'h'
           op { type: 'If' input: 'C' input: 'x' output: 'h'
                arg { name: 'then_net' n { op { type: 'Sqr' input: 'x' output: 'h' } } } } } }
         arg { name: 'timestep' s: 't' } arg { name: 'recurrent_states' strings: 'states' }
         arg { name: 'initial_recurrent_state_ids' ints: 1 }
         arg { name: 'link_internal' strings: 'h_prev' strings: 'h' strings: 'x' }
         arg { name: 'link_external' strings: 'states' strings: 'states' strings: 'X' }
         arg { name: 'link_offset' ints: 0 ints: 1 ints: 0 }
         arg { name: 'alias_src' strings: 'states' } arg { name: 'alias_dst' strings: 'h_all' }
         arg { name: 'alias_offset' ints: 1 } })");
  expect_contains(error_text([&] { run_net_once(def, w, run_); }), "If works on blobs and cannot stand in a step net");
}

TEST_F(While, HasNoGradient) {
  NetDef net = net_of(kWithConditionNet);
  const GradientRequest request{.targets = {{"X", ""}}, .wanted = {"X"}, .stop = {}};
  expect_contains(error_text([&] { add_gradient_operators(net, request); }), "known only when it runs");
}

}  // namespace
}  // namespace stepnet::testing::while_test
