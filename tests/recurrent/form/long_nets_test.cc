// Step nets, and what is derived from them, of many operators, states, outputs and parameters. Nothing is timed: where
// each of them is looked for among all others, these tests do not end.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "tests/core/gradient_testing.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::long_nets_test {
namespace {

OperatorDef& add(NetDef& net, const std::string& type, const std::vector<std::string>& in, const std::string& out) {
  OperatorDef& op = *net.add_op();
  op.set_type(type);
  for (const std::string& name : in) op.add_input(name);
  op.add_output(out);
  return op;
}

std::string numbered(const std::string& name, int i) { return name + std::to_string(i); }

// A network with one state and one sequence, whose step net has no operator yet.
struct Network {
  Network() : op(*net.add_op()), def(*op.MutableExtension(recurrent)), step(*def.mutable_step_net()) {
    op.set_type("RecurrentNetwork");
    op.add_input("X");
    op.add_input("h0");
    op.add_output("all");
    SequenceLink& x = *def.add_sequence();
    x.set_outer("X");
    x.set_inner("x");
    add_state("h_prev", "h").set_all("all");
  }
  StateLink& add_state(const std::string& input, const std::string& output) {
    StateLink& state = *def.add_state();
    state.set_input(input);
    state.set_output(output);
    state.set_initial("h0");
    return state;
  }
  const OperatorDef& expand() {
    expand_recurrent(net);
    return net.op(net.op_size() - 1);
  }
  const NetDef& backward() { return arg_of(net, "backward_step_net").n(); }

  NetDef net;
  OperatorDef& op;
  RecurrentDef& def;
  NetDef& step;
};

TEST(LongNets, ManyParameters) {
  constexpr int kMany = 100'000;
  Network n;
  std::vector<std::string> terms = {"x", "h_prev"};
  for (int i = 0; i < kMany; ++i) terms.push_back(numbered("p", i));
  add(n.step, "Sum", terms, "h");
  EXPECT_EQ(n.expand().input_size(), kMany + 2);
  EXPECT_EQ(arg_of(n.net, "param").ints_size(), kMany);
}

TEST(LongNets, ManyOutputs) {
  constexpr int kMany = 30'000;
  Network n;
  for (int i = 0; i < kMany; ++i) {
    add(n.step, "StopGradient", {"x"}, numbered("y", i));
    OutputLink& output = *n.def.add_output();
    output.set_inner(numbered("y", i));
    output.set_outer(numbered("Y", i));
    n.op.add_output(numbered("Y", i));
  }
  add(n.step, "Sum", {"x", "h_prev"}, "h");
  EXPECT_EQ(n.expand().output_size(), kMany + 2);
}

// What the last one gives depends on all others, each by a timestep more.
TEST(LongNets, ManyStates) {
  constexpr int kMany = 16'000;
  Network n;
  std::string last = "x";
  for (int i = 0; i < kMany; ++i) {
    const std::string input = numbered("s", i), output = numbered("t", i);
    n.add_state(input, output);
    add(n.step, "Sum", {last, input}, output);
    last = input;
  }
  add(n.step, "Sum", {last, "h_prev"}, "h");
  n.expand();
  EXPECT_EQ(arg_of(n.net, "recurrent_states").strings_size(), kMany + 1);
  EXPECT_GE(n.backward().op_size(), 1);
  EXPECT_EQ(arg_of(n.net, "backward_link_internal").strings_size(), 2 * (kMany + 1) + 1);
}

// The products of x are one, and so is their gradient.
TEST(LongNets, PairsOfProducts) {
  constexpr int kMany = 10'000;
  Network n;
  std::string last = "h_prev";
  for (int i = 0; i < kMany; ++i) {
    add(n.step, "FC", {"x", "W", "b"}, numbered("p", i));
    add(n.step, "FC", {last, "U", "b"}, numbered("q", i));
    add(n.step, "Sum", {numbered("p", i), numbered("q", i)}, numbered("a", i));
    last = numbered("a", i);
  }
  add(n.step, "Sum", {last, "x"}, "h");
  n.expand();
  EXPECT_GE(n.backward().op_size(), kMany);
}

TEST(LongNets, ReadersOfOneBlob) {
  constexpr int kMany = 100'000;
  NetDef net;
  std::vector<std::string> terms;
  for (int i = 0; i < kMany; ++i) {
    terms.push_back(numbered("y", i));
    add(net, "Tanh", {"x"}, terms.back());
  }
  add(net, "Sum", terms, "sum");
  GradientRequest request;
  request.targets.emplace_back("sum", "sum_grad");
  const GradientResult result = add_gradient_operators(net, request);
  EXPECT_EQ(result.gradients.at("x").dense, "x_grad");
  EXPECT_EQ(net.op(net.op_size() - 1).input_size(), kMany);
}

// Of each the gradient reads the shape that the blob had.
TEST(LongNets, SlicesOfOneBlob) {
  constexpr int kMany = 100'000;
  NetDef net;
  std::vector<std::string> terms;
  for (int i = 0; i < kMany; ++i) {
    terms.push_back(numbered("y", i));
    OperatorDef& op = add(net, "Slice", {"x"}, terms.back());
    *op.add_arg() = make_arg("starts", std::vector<int64_t>{0});
    *op.add_arg() = make_arg("ends", std::vector<int64_t>{4});
  }
  add(net, "Sum", terms, "sum");
  GradientRequest request;
  request.targets.emplace_back("sum", "sum_grad");
  EXPECT_EQ(add_gradient_operators(net, request).gradients.at("x").dense, "x_grad");
}

// Each version of the blob is made again from the one before: one call in the other would leave the stack.
TEST(LongNets, VersionsThatAreMadeAgain) {
  constexpr int kMany = 50'000;
  Network n;
  add(n.step, "Scale", {"x"}, "a");
  for (int i = 0; i < kMany; ++i) add(n.step, "Scale", {"a"}, "a");
  add(n.step, "Tanh", {"a"}, "b");
  add(n.step, "Scale", {"a"}, "a");
  add(n.step, "Sum", {"b", "h_prev"}, "h");
  n.def.add_recompute("b");
  n.expand();
  const NetDef& backward = n.backward();
  ASSERT_GE(backward.op_size(), kMany + 3);
  EXPECT_EQ(line_of(backward.op(0)), "a_before = Scale(x)");
  EXPECT_EQ(line_of(backward.op(1)), "a_before_1 = Scale(a_before)");
  EXPECT_EQ(line_of(backward.op(kMany)), fmt::format("a_before_{} = Scale(a_before_{})", kMany, kMany - 1));
  EXPECT_EQ(line_of(backward.op(kMany + 1)), fmt::format("b = Tanh(a_before_{})", kMany));
}

}  // namespace
}  // namespace stepnet::testing::long_nets_test
