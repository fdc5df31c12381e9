// What is let go of, and when. The suite checks that every test gives back the bytes that it took.
#include <gtest/gtest.h>

#include "stepnet/function.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::lifetime_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

class TapeLifetime : public TapeTest {};

constexpr int kDeep = 150000;

Variable mul(const Variable& a, const Variable& b) { return testing::apply("Mul", {a, b}); }
Variable twice(const Variable& x) { return run("Scale", {x}, {make_arg("scale", 2.0F)})[0]; }

TEST_F(TapeLifetime, FreeDeepGraph) {
  const Variable x = var({1});
  {
    Variable y = x;
    for (int i = 0; i < kDeep; ++i) y = testing::apply("Tanh", {y});  // each saves its output
  }
  Variable y = x;
  for (int i = 0; i < kDeep; ++i) y = testing::apply("Tanh", {y});
  backward(y);
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(TapeLifetime, FreeDeepGraphComplicated) {
  const Variable x = var({1});
  Variable a = x, b = x, c = x;
  for (int i = 0; i < kDeep; ++i) {
    Variable next = testing::apply("Add", {i % 3 == 0 ? b : a, i % 2 == 0 ? c : b});
    a = std::move(b);
    b = std::move(c);
    c = std::move(next);
  }
}

TEST_F(TapeLifetime, FreeDeepGraphPyfunction) {
  const Function copy({
      .name = "Copy",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{Variable(call.input(0).value().clone())}; },
      .backward = [](FunctionRun&, const Gradients& dy) { return dy; },
  });
  const Variable x = var({1});
  Variable y = x;
  for (int i = 0; i < kDeep; ++i) y = copy({y})[0];
  backward({y}, {}, {.keep_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{1}));
}

// A chain whose nodes are held by what others saved, and not by edges alone.
TEST_F(TapeLifetime, FreeDeepGraphThroughSavedValues) {
  Variable held = var({1});
  const SavedValueHooksScope scope({
      .pack = [&](const Tensor&) { return std::any(held); },
      .unpack = [](const std::any& packed) { return std::any_cast<Variable>(packed).value(); },
  });
  for (int i = 0; i < kDeep; ++i) held = testing::apply("Exp", {var({0})});
}

TEST_F(TapeLifetime, FreeDeepGraphThroughHooksAndData) {
  const Function keeper({
      .name = "Keeper",
      .forward =
          [](FunctionCall& call) {
            call.data = call.input(1);
            return std::vector<Variable>{Variable(call.input(0).value().clone())};
          },
      .backward = [](FunctionRun&, const Gradients& dy) { return dy; },
  });
  const Variable x = var({1});
  Variable held = x;
  for (int i = 0; i < kDeep / 2; ++i) {
    const Variable next = keeper({x, held})[0];
    next.register_hook([held](const VariableGradient&) -> VariableGradient { return {}; });
    held = next;
  }
}

// Gradients with graphs, each of which holds the leaf that has the one before.
TEST_F(TapeLifetime, FreeDeepGraphThroughGradients) {
  Variable leaf = var({1});
  for (int i = 0; i < 20000; ++i) {
    Variable next = var({1});
    next.set_grad(mul(leaf, leaf));
    next.register_hook([leaf](const VariableGradient&) -> VariableGradient { return {}; });
    leaf = next;
  }
}

TEST_F(TapeLifetime, FreeLongChainsOfLeaves) {
  Variable by_hook = var({1}), by_hook_after = var({1}), by_gradient = var({1});
  for (int i = 0; i < 100000; ++i) {
    Variable next = var({1});
    next.register_hook([by_hook](const VariableGradient&) -> VariableGradient { return {}; });
    by_hook = next;
    next = var({1});
    next.register_post_accumulate_hook([by_hook_after](Variable&) {});
    by_hook_after = next;
    next = var({1});
    next.set_grad(by_gradient);
    by_gradient = next;
  }
}

TEST_F(TapeLifetime, RetainGradCycle) {
  const Variable x = var({1});
  std::weak_ptr<VariableState> state;
  Variable z;
  {
    Variable y = twice(x);
    y.retain_grad();
    state = y.shared_state();
    z = twice(y);
  }
  EXPECT_TRUE(state.expired());
  backward(z);
  EXPECT_EQ(grad_of(x), (Numbers{4}));
}

// What a function is given and what it makes, kept in its own data, does not own the graph.
TEST_F(TapeLifetime, CustomFunctionCycle) {
  const Function fn({
      .name = "Keeper",
      .forward =
          [](FunctionCall& call) {
            const Variable y = twice(call.input(0));
            call.save("x", call.input(0));
            call.save("y", y);
            call.data = std::vector<Variable>{call.input(0), y};
            return std::vector<Variable>{y};
          },
      .backward =
          [](FunctionRun& pass, const Gradients& dy) {
            EXPECT_EQ(values_of(std::any_cast<std::vector<Variable>>(pass.data())[1]), values_of(pass.saved("y")));
            return Gradients{twice(dy[0].dense)};
          },
  });
  const int64_t before = live_bytes();
  {
    const Variable x = var({1});
    const Variable y = fn({twice(x)})[0];
    grad({y}, {x}, {.create_graph = true});
    const Variable dropped = fn({x})[0];
  }
  EXPECT_EQ(live_bytes(), before);
}

TEST_F(TapeLifetime, CustomFunctionSavingMutatedViewNoLeak) {
  const Function fn({
      .name = "Mutating",
      .forward =
          [](FunctionCall& call) {
            call.overwrites(call.input(0));
            run("Scale", {call.input(0)}, {make_arg("scale", 2.0F)}, {.in_place = true});
            call.save("it", call.input(0));
            return std::vector<Variable>{call.input(0)};
          },
      .backward =
          [](FunctionRun& pass, const Gradients& dy) {
            EXPECT_EQ(values_of(pass.saved("it")), (Numbers{4}));
            return Gradients{twice(dy[0].dense)};
          },
  });
  const Variable x = var({1});
  const Variable h = twice(x);
  std::weak_ptr<Node> node;
  {
    const Variable y = fn({h})[0];
    node = y.grad_fn();
    backward(y);
  }
  EXPECT_EQ(grad_of(x), (Numbers{4}));
  Variable(h).detach_();
  EXPECT_TRUE(node.expired());
}

// The gradient has a graph, which leads to the leaf that has the gradient.
TEST_F(TapeLifetime, CreateGraphAndFullBackwardHookCycle) {
  const int64_t before = live_bytes();
  {
    const Variable x = var({2}), k = var({3});
    const Variable y = mul(mul(x, x), k);
    int called = 0;
    y.grad_fn()->register_post_hook([&](const Gradients&, const Gradients&) -> Gradients {
      ++called;
      return {};
    });
    backward({y}, {}, {.create_graph = true});
    EXPECT_TRUE(x.grad().dense.requires_grad());
    EXPECT_EQ(called, 1);
  }
  EXPECT_EQ(live_bytes(), before);
}

// A hook that holds the variable that it is on keeps it, until the hook is removed.
TEST_F(TapeLifetime, HookClosureCycle) {
  std::weak_ptr<VariableState> leaf, interior;
  HookHandle on_leaf, on_interior;
  {
    const Variable x = var({2}), y = twice(x);
    leaf = x.shared_state();
    interior = y.shared_state();
    on_leaf = x.register_hook([x](const VariableGradient&) -> VariableGradient { return {}; });
    on_interior = y.register_hook([y](const VariableGradient&) -> VariableGradient { return {}; });
    backward(y);
  }
  EXPECT_FALSE(leaf.expired() || interior.expired());
  on_interior.remove();
  EXPECT_TRUE(interior.expired());
  on_leaf.remove();
  EXPECT_TRUE(leaf.expired());
}

// Hooks on a leaf's gradient are called, also if nobody but the graph knows the leaf.
TEST_F(TapeLifetime, LeavesThatAreDropped) {
  Numbers seen;
  Variable y;
  {
    const Variable x = var({2});
    x.register_hook([&](const VariableGradient& g) -> VariableGradient {
      seen = values_of(g.dense);
      return {};
    });
    y = mul(x, x);
  }
  backward(y);
  EXPECT_EQ(seen, (Numbers{4}));
}

TEST_F(TapeLifetime, AnomalyAssignParentCleanup) {
  const int64_t before = live_bytes();
  std::weak_ptr<Node> forward;
  {
    const AnomalyMode anomaly;
    const Variable x = var({2, 3});
    const Variable y = sum_of(testing::apply("Log", {x}));
    forward = y.grad_fn();
    const Variable g = grad({y}, {x}, {.create_graph = true})[0].dense;
    EXPECT_NE(g.grad_fn()->parent(), nullptr);
    const Variable gg = grad({sum_of(g)}, {x}, {.create_graph = true})[0].dense;
    EXPECT_NE(gg.grad_fn()->parent()->parent(), nullptr);
  }
  EXPECT_TRUE(forward.expired());
  EXPECT_EQ(live_bytes(), before);
}

TEST_F(TapeLifetime, NestedAnomalyPrintstackCleanup) {
  const int64_t before = live_bytes();
  const Function nan({
      .name = "Nan",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{twice(call.input(0))}; },
      .backward =
          [](FunctionRun&, const Gradients& dy) {
            return Gradients{testing::apply("Log", {testing::apply("Negative", {dy[0].dense})})};
          },
  });
  {
    const AnomalyMode anomaly;
    const Variable x = var({2});
    const Function outer({
        .name = "Outer",
        .forward = [](FunctionCall& call) { return std::vector<Variable>{twice(call.input(0))}; },
        .backward =
            [&](FunctionRun&, const Gradients& dy) {
              const EnableGrad enable;
              const Variable inner = var({1});
              backward(nan({inner})[0]);
              return dy;
            },
    });
    const std::string text = error_text([&] { backward(outer({x})[0]); });
    expect_contains(text, "NanGradient has made a NaN in the gradient of input 0");
    expect_contains(text, "for OuterGradient, which ran forward at");
  }
  EXPECT_EQ(live_bytes(), before);
}

}  // namespace
}  // namespace stepnet::autograd::testing::lifetime_test
