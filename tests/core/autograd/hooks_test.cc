// Hooks on variables and nodes, their order, and retained gradients.
#include <gtest/gtest.h>

#include "core/autograd/group_hooks.h"
#include "stepnet/function.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::hooks_test {

class TapeHooks : public TapeTest {};

namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;
using Words = std::vector<std::string>;

Numbers numbers(const VariableGradient& g) { return g.defined() ? values_of(g.dense) : Numbers{}; }
Variable twice(const Variable& x) { return run("Scale", {x}, {make_arg("scale", 2.0F)})[0]; }
Variable scaled(const Variable& x, float by) { return run("Scale", {x}, {make_arg("scale", by)})[0]; }

// A hook that multiplies the gradient.
GradientHook times(float by) {
  return [by](const VariableGradient& g) -> VariableGradient { return scaled(g.dense, by); };
}
GradientHook counting(int& count) {
  return [&count](const VariableGradient&) -> VariableGradient {
    ++count;
    return {};
  };
}
NodePreHook counting_node(int& count) {
  return [&count](const Gradients&) -> Gradients {
    ++count;
    return {};
  };
}
NodePostHook counting_after(int& count) {
  return [&count](const Gradients&, const Gradients&) -> Gradients {
    ++count;
    return {};
  };
}

TEST_F(TapeHooks, Hooks) {
  const Variable x = var({1, 2}), y = var({3, 4});
  const Variable z = apply("Mul", {x, y});
  int sum = 0;
  const auto add = [&sum](int n) {
    return [&sum, n](const VariableGradient&) -> VariableGradient {
      sum += n;
      return {};
    };
  };
  const Gradients ones = {constant({1, 1})};
  HookHandle first = z.register_hook(add(1));
  backward({z}, ones, {.keep_graph = true});
  EXPECT_EQ(sum, 1);
  HookHandle second = z.register_hook(add(10));
  backward({z}, ones, {.keep_graph = true});
  EXPECT_EQ(sum, 12);
  second.remove();
  second.remove();
  backward({z}, ones, {.keep_graph = true});
  EXPECT_EQ(sum, 13);
  first.remove();
  Variable(y).clear_grad();
  z.register_hook(times(2));
  z.register_hook(times(3));
  backward({z}, ones);
  EXPECT_EQ(sum, 13);
  EXPECT_EQ(grad_of(y), (Numbers{6, 12}));
  expect_contains(error_text([&] { constant({1}).register_hook(times(2)); }), "cannot have a hook on it");
  const Variable w = apply("Mul", {x, y});
  w.register_hook([](const VariableGradient&) -> VariableGradient { return constant({1, 2, 3}); });
  expect_contains(error_text([&] { backward({w}, ones); }), "is double[2], but its gradient is double[3]");
}

TEST_F(TapeHooks, PrehookOrdering) {
  const Variable x = var({2});
  const Variable y = apply("Exp", {x});
  Words order;
  const auto node_hook = [&](const std::string& word) {
    return [&order, word](const Gradients&) -> Gradients {
      order.push_back(word);
      return {};
    };
  };
  const auto hook = [&](const std::string& word) {
    return [&order, word](const VariableGradient&) -> VariableGradient {
      order.push_back(word);
      return {};
    };
  };
  const std::shared_ptr<Node> leaf = x.gradient_edge().node;
  leaf->register_pre_hook(node_hook("leaf node"));
  x.register_hook(hook("leaf"));
  y.grad_fn()->register_pre_hook(node_hook("node"));
  y.register_hook(hook("variable"));
  backward({y}, {}, {.keep_graph = true});
  EXPECT_EQ(order, (Words{"variable", "node", "leaf", "leaf node"}));
  order.clear();
  grad({y}, {x});
  EXPECT_EQ(order, (Words{"variable", "node", "leaf"}));
}

TEST_F(TapeHooks, RetainsGradCanAlwaysObserveTensorPrehook) {
  const Variable x = var({1});
  Variable y = apply("Scale", {x});
  y.register_hook(times(2));
  y.retain_grad();
  y.register_hook(times(5));
  y.grad_fn()->register_pre_hook([](const Gradients& g) -> Gradients { return {scaled(g[0].dense, 3)}; });
  backward(y);
  EXPECT_EQ(grad_of(y), (Numbers{10}));
  EXPECT_EQ(grad_of(x), (Numbers{30}));
}

TEST_F(TapeHooks, HookEdgeCaseWhenCalledWithGrad) {
  const Variable a = var({1});
  const Variable b = twice(a), c = twice(b);
  int hooks = 0, before = 0, after = 0;
  const std::shared_ptr<Node> leaf = a.gradient_edge().node;
  for (const Variable& v : {a, b}) v.register_hook(counting(hooks));
  for (const std::shared_ptr<Node>& node : {leaf, b.grad_fn()}) {
    node->register_pre_hook(counting_node(before));
    node->register_post_hook(counting_after(after));
  }
  const auto counts = [&](const std::function<void()>& pass) {
    hooks = before = after = 0;
    pass();
    return std::vector<int>{hooks, before, after};
  };
  using Counts = std::vector<int>;
  EXPECT_EQ(counts([&] { grad({c}, {b}, {.keep_graph = true}); }), (Counts{1, 0, 0}));
  EXPECT_EQ(counts([&] { grad({c}, {a, b}, {.keep_graph = true}); }), (Counts{2, 1, 1}));
  EXPECT_EQ(counts([&] { backward({c}, {}, {.keep_graph = true}); }), (Counts{2, 2, 2}));
  EXPECT_EQ(counts([&] { backward({c}, {}, {.keep_graph = true, .inputs = {a, b}}); }), (Counts{2, 2, 2}));
  // The reference runs the node of b here, to no purpose.
  EXPECT_EQ(counts([&] { backward({c}, {}, {.inputs = {b}}); }), (Counts{1, 0, 0}));
}

TEST_F(TapeHooks, AccumulateGradPosthooksCanObserveTensorPrehook) {
  const Variable a = var({1});
  a.register_hook(times(2));
  Numbers seen;
  a.gradient_edge().node->register_post_hook([&](const Gradients&, const Gradients& gradients) -> Gradients {
    seen = numbers(gradients[0]);
    return {};
  });
  const Variable b = twice(a);
  const std::shared_ptr<Node> leaf = b.grad_fn()->edges()[0].node;
  leaf->register_post_hook([&](const Gradients&, const Gradients& gradients) -> Gradients {
    seen = numbers(gradients[0]);
    return {};
  });
  backward(b);
  EXPECT_EQ(seen, (Numbers{4}));
  EXPECT_EQ(grad_of(a), (Numbers{4}));
}

TEST_F(TapeHooks, AccumulateGradPosthooksShouldNotExecute) {
  const Variable a = var({1}), b = var({2});
  int called = 0;
  const Variable c = apply("Mul", {a, b});
  for (const Edge& edge : c.grad_fn()->edges()) edge.node->register_post_hook(counting_after(called));
  a.register_post_accumulate_hook([&](Variable&) { ++called; });
  grad({c}, {a}, {.keep_graph = true});
  EXPECT_EQ(called, 0);
  backward({c}, {}, {.inputs = {b}});
  EXPECT_EQ(called, 1);
}

TEST_F(TapeHooks, PostAccumulateGradHookOrdering) {
  const Variable x = var({3});
  Words order;
  x.register_hook([&](const VariableGradient& g) -> VariableGradient {
    EXPECT_FALSE(x.grad().defined());
    order.push_back("variable");
    return scaled(g.dense, 2);
  });
  const Variable y = twice(x);
  const std::shared_ptr<Node> leaf = y.grad_fn()->edges()[0].node;
  leaf->register_pre_hook([&](const Gradients& g) -> Gradients {
    order.push_back("before");
    return {scaled(g[0].dense, 3)};
  });
  leaf->register_post_hook([&](const Gradients&, const Gradients&) -> Gradients {
    order.push_back("after");
    return {};
  });
  x.register_post_accumulate_hook([&](Variable& v) {
    EXPECT_FALSE(tape_state().recording);
    EXPECT_EQ(grad_of(v), (Numbers{12}));
    order.push_back("accumulated");
  });
  backward(y);
  EXPECT_EQ(order, (Words{"variable", "before", "accumulated", "after"}));
}

// A step of gradient descent inside of the pass, which lets go of each gradient at once, is one behind it.
TEST_F(TapeHooks, PostAccumulateGradHookE2e) {
  const auto train = [](bool inside) {
    std::vector<Variable> weights = {var({1, 2}), var({3, 4})};
    const auto step = [](Variable& w) {
      const NoGrad no_grad;
      w.copy_(apply("Sub", {w, scaled(w.grad().dense, 0.25F)}));
      w.clear_grad();
    };
    if (inside)
      for (const Variable& w : weights) w.register_post_accumulate_hook(step);
    for (int i = 0; i < 3; ++i) {
      backward(sum_of(apply("Mul", {apply("Mul", {weights[0], weights[0]}), weights[1]})));
      for (Variable& w : weights) {
        EXPECT_EQ(w.grad().defined(), !inside);
        if (!inside) step(w);
      }
    }
    return std::make_pair(values_of(weights[0]), values_of(weights[1]));
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(TapeHooks, PostAccumulateGradHookOnNonLeaf) {
  const Variable y = twice(var({1}));
  const auto hook = [](Variable&) {};
  expect_contains(error_text([&] { y.register_post_accumulate_hook(hook); }), "only a leaf that requires a gradient");
  expect_contains(error_text([&] { constant({1}).register_post_accumulate_hook(hook); }), "only a leaf");
}

TEST_F(TapeHooks, PostAccumulateGradHookGetsCleanedUp) {
  const auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = held;
  {
    const Variable x = var({1});
    x.register_post_accumulate_hook([held](Variable&) {});
    backward(twice(x));
  }
  EXPECT_EQ(alive.use_count(), 1);
}

}  // namespace
}  // namespace stepnet::autograd::testing::hooks_test
