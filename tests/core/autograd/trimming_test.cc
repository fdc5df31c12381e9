// What runs in a pass that is asked for some gradients alone.
#include <gtest/gtest.h>

#include "stepnet/function.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::trimming_test {

class TapeTrimming : public TapeTest {};

namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

// Copies its input, and must not be asked for a gradient.
Variable never(const Variable& x) {
  static const Function fn({
      .name = "Never",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{Variable(call.input(0).value().clone())}; },
      .backward = [](FunctionRun&, const Gradients&) -> Gradients { throw Error("Never has run"); },
  });
  return fn({x})[0];
}

Numbers numbers(const VariableGradient& g) { return g.defined() ? values_of(g.dense) : Numbers{}; }

TEST_F(TapeTrimming, GradUnreachable) {
  const Variable x = var({1, 1}), y = var({1, 1});
  const Variable z = sum_of(apply("Scale", {x}));
  expect_contains(error_text([&] { grad({z}, {x, y}, {.keep_graph = true}); }), "no output depends on input 1");
  const Gradients g = grad({z}, {x, y}, {.keep_graph = true, .allow_unused = true});
  EXPECT_EQ(numbers(g[0]), (Numbers{1, 1}));
  EXPECT_FALSE(g[1].defined());
  // So for an interior variable that z does not depend on.
  const Variable w = apply("Exp", {x});
  EXPECT_FALSE(grad({z}, {w}, {.allow_unused = true})[0].defined());
}

TEST_F(TapeTrimming, GradUnreachableDiscovery) {
  const Variable x = var({1, 2}), y = var({1, 2});
  const Variable z = sum_of(never(apply("Exp", {x})));
  const Count ran(TapeEvent::node_run);
  EXPECT_FALSE(grad({z}, {y}, {.allow_unused = true})[0].defined());
  EXPECT_EQ(ran(), 0);
  BackwardOptions options;
  options.inputs = {y};
  backward({z}, {}, options);
  EXPECT_FALSE(y.grad().defined());
  EXPECT_EQ(ran(), 0);
}

TEST_F(TapeTrimming, WillEngineExecuteNode) {
  const Variable x = var({2}), y = var({3});
  const Variable a = apply("Exp", {x}), b = apply("Exp", {y});
  const Variable z = apply("Mul", {a, b});
  std::vector<bool> seen;
  const auto look = [&](const VariableGradient&) -> VariableGradient {
    for (const Variable& v : {x, y, a, b}) seen.push_back(will_run(*v.gradient_edge().node));
    return {};
  };
  z.register_hook(look);
  const auto seen_in = [&](const std::vector<Variable>& inputs) {
    seen.clear();
    backward({z}, {}, {.keep_graph = true, .inputs = inputs});
    return seen;
  };
  EXPECT_EQ(seen_in({}), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(seen_in({x}), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(seen_in({b}), (std::vector<bool>{false, false, false, true}));
  seen.clear();
  grad({z}, {y});  // a leaf whose gradient is taken counts, too
  EXPECT_EQ(seen, (std::vector<bool>{false, true, false, true}));
  expect_contains(error_text([&] { will_run(*z.grad_fn()); }), "no backward pass is running on this thread");
}

// Of the reference's test, what does not write through a view.
TEST_F(TapeTrimming, CopySlicesGraphTaskUpdates) {
  const Variable x = var({1, 2}), y = var({3, 4});
  Variable base = apply("Exp", {constant({0, 0})});
  const Variable scaled = apply("Scale", {x});
  base.copy_(scaled);
  const Variable bad = never(y);
  apply_in_place("Add", {base, bad});
  const Variable z = sum_of(base);
  EXPECT_EQ(numbers(grad({z}, {x}, {.keep_graph = true})[0]), (Numbers{1, 1}));
  EXPECT_EQ(numbers(grad({z}, {scaled}, {.keep_graph = true})[0]), (Numbers{1, 1}));
  backward({z}, {}, {.keep_graph = true, .inputs = {x}});
  EXPECT_EQ(grad_of(x), (Numbers{1, 1}));
  expect_contains(error_text([&] { grad({z}, {y}); }), "Never has run");
}

TEST_F(TapeTrimming, BackwardWithInputs) {
  const Variable x = var({2}), y = var({3});
  const Variable z = apply("Add", {apply("Mul", {x, x}), apply("Mul", {y, y})});
  backward({z}, {}, {.keep_graph = true, .inputs = {y}});
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(grad_of(y), (Numbers{6}));
  backward({z}, {}, {.keep_graph = true, .inputs = {x, x}});  // twice is once
  EXPECT_EQ(grad_of(x), (Numbers{4}));
  EXPECT_EQ(grad_of(y), (Numbers{6}));
  backward({z}, {}, {.inputs = {}});  // an empty list is every leaf
  EXPECT_EQ(grad_of(x), (Numbers{8}));
  EXPECT_EQ(grad_of(y), (Numbers{12}));
}

TEST_F(TapeTrimming, BackwardWithNonleafInputs) {
  const Variable x = var({2}), y = var({3});
  const Variable h = apply("Mul", {x, x}), unused = apply("Mul", {y, x});
  const Variable z = apply("Mul", {h, y});
  const Count ran(TapeEvent::node_run);
  backward({z}, {}, {.keep_graph = true, .inputs = {h}});
  EXPECT_EQ(ran(), 1);  // not the node of h
  EXPECT_EQ(grad_of(h), (Numbers{3}));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(y.grad().defined());
  backward({z}, {}, {.keep_graph = true, .inputs = {h, y, h}});
  EXPECT_EQ(grad_of(h), (Numbers{6}));
  EXPECT_EQ(grad_of(y), (Numbers{4}));
  // Once, also where h retains its gradient and its node runs.
  Variable(h).retain_grad();
  backward({z}, {}, {.inputs = {h, x, unused}});
  EXPECT_EQ(grad_of(h), (Numbers{9}));
  EXPECT_EQ(grad_of(x), (Numbers{12}));
  EXPECT_FALSE(unused.grad().defined());
}

TEST_F(TapeTrimming, GradNonleaf) {
  const Variable x = var({2, 3}), y = var({4, 5});
  Variable h = apply("Mul", {x, y});
  for (int i = 0; i < 3; ++i) {
    const Variable next = apply("Mul", {h, h});
    EXPECT_EQ(numbers(grad({sum_of(next)}, {h})[0])[0], 2 * values_of(h)[0]);
    h = next;
  }
  const Variable last = sum_of(h);
  EXPECT_TRUE(grad({last}, {h})[0].defined());
  for (const Variable& v : {x, y, h, last}) EXPECT_FALSE(v.grad().defined());
}

TEST_F(TapeTrimming, GradNonleafManyOutputs) {
  const Variable x = var({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  int called = 0;
  x.register_hook([&](const VariableGradient&) -> VariableGradient {
    ++called;
    return {};
  });
  const std::vector<Variable> parts = run("Split", {x}, {make_arg("axis", 0)}, {.outputs = 2});
  const Variable z = sum_of(apply("Mul", {parts[0], parts[1]}));
  const Gradients g = grad({z}, parts, {.keep_graph = true});
  EXPECT_EQ(numbers(g[0]), (Numbers{5, 6, 7, 8}));
  EXPECT_EQ(numbers(g[1]), (Numbers{1, 2, 3, 4}));
  // One of them alone, too, though nothing comes from the other's users.
  const Variable sums = apply("Add", {sum_of(apply("Exp", {parts[1]})), sum_of(parts[0])});
  EXPECT_EQ(numbers(grad({sums}, {parts[0]})[0]), (Numbers{1, 1, 1, 1}));
  EXPECT_EQ(called, 0);
  EXPECT_FALSE(x.grad().defined() || parts[0].grad().defined() || parts[1].grad().defined());
}

TEST_F(TapeTrimming, GradEmptyInputs) {
  const Variable x = var({1});
  expect_contains(error_text([&] { grad({apply("Exp", {x})}, {}); }), "grad needs at least one input");
}

TEST_F(TapeTrimming, GradBadcalls) {
  const Variable x = constant({2}), y = apply("Exp", {x});
  expect_contains(error_text([&] { grad({y}, {x}); }), "output 0, double[1], does not require a gradient");
  const Variable v = var({2}), z = apply("Exp", {v});
  expect_contains(error_text([&] { grad({z}, {x}); }), "input 0, double[1], does not require a gradient");
  expect_contains(error_text([&] { grad({}, {v}); }), "there is no root to start from");
  expect_contains(error_text([&] {
                    grad({z}, {v}, {.grad_outputs = {constant({1}), constant({1})}});
                  }),
                  "2 gradients are given for 1 roots");
  expect_contains(error_text([&] { grad({z}, {Variable()}); }), "input 0 is undefined");
}

TEST_F(TapeTrimming, BackwardBadcalls) {
  expect_contains(error_text([&] { backward(constant({2})); }), "root 0, double[1], does not require a gradient");
  expect_contains(error_text([&] {
                    backward({var({2})}, {constant({1, 2})});
                  }),
                  "root 0 is double[1], but its gradient is double[2]");
}

TEST_F(TapeTrimming, GradMaterializeGrads) {
  const Variable x = var({2}), a = var({1, 1});
  const Variable y = apply("Mul", {x, x});
  const Variable dydx = grad({y}, {x}, {.create_graph = true})[0].dense;
  const Gradients g = grad({dydx}, {x, a}, {.materialize = true});
  EXPECT_EQ(numbers(g[0]), (Numbers{2}));
  EXPECT_EQ(numbers(g[1]), (Numbers{0, 0}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::trimming_test
