// Hooks on nodes, what a write in place does to hooks and to retained gradients, and hooks on groups.
#include <gtest/gtest.h>

#include "core/autograd/group_hooks.h"
#include "stepnet/function.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::hooks_moves_test {

class TapeHooksMoves : public TapeTest {};

namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

Numbers numbers(const VariableGradient& g) { return g.defined() ? values_of(g.dense) : Numbers{}; }
Variable scaled(const Variable& x, float by) { return run("Scale", {x}, {make_arg("scale", by)})[0]; }
void scale_in_place(const Variable& x, float by) { run("Scale", {x}, {make_arg("scale", by)}, {.in_place = true}); }
NodePreHook times(float by) {
  return [by](const Gradients& g) -> Gradients {
    Gradients others(g.size());
    for (size_t i = 0; i < g.size(); ++i)
      if (g[i].defined()) others[i] = scaled(g[i].dense, by);
    return others;
  };
}
GradientHook keep_in(std::vector<Numbers>& seen) {
  return [&seen](const VariableGradient& g) -> VariableGradient {
    seen.push_back(numbers(g));
    return {};
  };
}

// Both inputs times 2 and 3, in place.
std::vector<Variable> scale_both_in_place(const Variable& a, const Variable& b) {
  static const Function fn({
      .name = "ScaleBoth",
      .forward =
          [](FunctionCall& call) {
            for (int i = 0; i < 2; ++i) {
              call.overwrites(call.input(i));
              scale_in_place(call.input(i), static_cast<float>(2 + i));
            }
            return call.inputs();
          },
      .backward =
          [](FunctionRun&, const Gradients& dy) {
            return Gradients{scaled(dy[0].dense, 2), scaled(dy[1].dense, 3)};
          },
  });
  return fn({a, b});
}

TEST_F(TapeHooksMoves, GradFnPrehooks) {
  const Variable x = var({2});
  const Variable y = apply("Mul", {x, x});
  y.grad_fn()->register_pre_hook(times(2));
  y.grad_fn()->register_pre_hook([](const Gradients&) -> Gradients { return {}; });  // keeps what it gets
  y.grad_fn()->register_pre_hook(times(3));
  backward(y);
  EXPECT_EQ(grad_of(x), (Numbers{24}));
  const Variable z = scaled(var({1, 2}), 1);
  z.grad_fn()->register_pre_hook([](const Gradients&) -> Gradients { return {constant({1, 2, 3})}; });
  expect_contains(error_text([&] { backward(sum_of(z)); }), "is double[2], but its gradient is double[3]");
}

TEST_F(TapeHooksMoves, GradFnPrehooksMultipleOutputs) {
  const Variable x = var({1, 2});
  const std::vector<Variable> parts = run("Split", {x}, {make_arg("axis", 0)}, {.outputs = 2});
  parts[0].grad_fn()->register_pre_hook([](const Gradients& g) -> Gradients {
    EXPECT_EQ(g.size(), 2U);
    return {scaled(g[1].dense, 2), scaled(g[0].dense, 3)};
  });
  backward(apply("Add", {scaled(parts[0], 5), scaled(parts[1], 7)}));
  EXPECT_EQ(grad_of(x), (Numbers{14, 15}));
}

TEST_F(TapeHooksMoves, GradFnPrehooksRemoveHooks) {
  const Variable x = var({2});
  const Variable y = scaled(x, 1);
  const std::shared_ptr<Node>& node = y.grad_fn();
  HookHandle first = node->register_pre_hook(times(2)), third;
  int called = 0;
  HookHandle second = node->register_pre_hook([&](const Gradients&) -> Gradients {
    ++called;
    third.remove();  // which was to run after it, in this pass for the last time
    second.remove();
    return {};
  });
  third = node->register_pre_hook(times(5));
  backward({y}, {}, {.keep_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{10}));
  backward({y}, {}, {.keep_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{12}));
  first.remove();
  backward({y}, {}, {});
  EXPECT_EQ(grad_of(x), (Numbers{13}));
  EXPECT_EQ(called, 1);
}

TEST_F(TapeHooksMoves, GradNonleafRegisterHook) {
  const Variable x = var({1, 2, 3});
  const std::vector<Variable> parts = run("Split", {x}, {make_arg("axis", 0)}, {.outputs = 3});
  std::vector<Numbers> seen, others;
  parts[0].register_hook(keep_in(seen));
  parts[1].register_hook(keep_in(others));
  backward(parts[0]);
  EXPECT_EQ(seen, (std::vector<Numbers>{{1}}));
  EXPECT_TRUE(others.empty());
  EXPECT_EQ(grad_of(x), (Numbers{1, 0, 0}));
  for (const Variable& part : parts) EXPECT_FALSE(part.grad().defined());
}

TEST_F(TapeHooksMoves, RetainGrad) {
  Variable x = var({2}), h = scaled(x, 3);
  const Variable z = apply("Mul", {h, h});
  h.retain_grad();
  h.retain_grad();
  backward({z}, {}, {.keep_graph = true});
  EXPECT_EQ(grad_of(h), (Numbers{12}));
  backward({z}, {}, {.keep_graph = true});
  EXPECT_EQ(grad_of(h), (Numbers{24}));
  x.retain_grad();
  EXPECT_EQ(grad_of(x), (Numbers{72}));
  expect_contains(error_text([] { constant({1}).retain_grad(); }), "cannot retain it");
  // It is the variable's own, also if the variable retains and is taken in one pass.
  grad({z}, {h});
  EXPECT_EQ(grad_of(h), (Numbers{24}));
}

TEST_F(TapeHooksMoves, RetainGradInplace) {
  const Variable x = var({2});
  Variable h = scaled(x, 3);
  h.retain_grad();
  scale_in_place(h, 5);
  backward({scaled(h, 7)}, {}, {.keep_graph = true});
  EXPECT_EQ(grad_of(h), (Numbers{7}));
  EXPECT_EQ(grad_of(x), (Numbers{105}));
  // After a write that cuts it off, nothing arrives at it any more.
  h.clear_grad();
  const Variable z = scaled(h, 7);
  h.detach_();
  backward(z);
  EXPECT_FALSE(h.grad().defined());
}

TEST_F(TapeHooksMoves, RetainsGradInplaceMultipleOutputs) {
  const Variable x = var({2}), y = var({3});
  Variable a = scaled(x, 1), b = scaled(y, 1);
  a.retain_grad();
  b.retain_grad();
  scale_both_in_place(a, b);
  EXPECT_EQ(a.grad_fn(), b.grad_fn());
  EXPECT_EQ(values_of(b), (Numbers{9}));
  backward(apply("Add", {scaled(a, 5), scaled(b, 7)}));
  EXPECT_EQ(grad_of(a), (Numbers{5}));
  EXPECT_EQ(grad_of(b), (Numbers{7}));
  EXPECT_EQ(grad_of(x), (Numbers{10}));
  EXPECT_EQ(grad_of(y), (Numbers{21}));
}

TEST_F(TapeHooksMoves, TensorHooksInplace) {
  const Variable x = var({2});
  const Variable h = scaled(x, 3);
  std::vector<Numbers> before, after;
  h.register_hook(keep_in(before));
  scale_in_place(h, 5);
  h.register_hook(keep_in(after));
  backward(scaled(h, 7));
  EXPECT_EQ(before, (std::vector<Numbers>{{35}}));
  EXPECT_EQ(after, (std::vector<Numbers>{{7}}));
}

TEST_F(TapeHooksMoves, TensorHooksInplaceMultipleOutputs) {
  const Variable x = var({2}), y = var({3});
  const Variable a = scaled(x, 1), b = scaled(y, 1);
  std::vector<Numbers> before, after;
  for (const Variable& v : {a, b}) v.register_hook(keep_in(before));
  scale_both_in_place(a, b);
  for (const Variable& v : {a, b}) v.register_hook(keep_in(after));
  backward(apply("Add", {scaled(a, 5), scaled(b, 7)}));
  EXPECT_EQ(before, (std::vector<Numbers>{{21}, {10}}));  // of the later node first
  EXPECT_EQ(after, (std::vector<Numbers>{{5}, {7}}));
}

TEST_F(TapeHooksMoves, MultiGradAllHooks) {
  const Variable a = var({1}), b = var({2}), c = var({3});
  const Variable h = apply("Mul", {a, b});
  const Variable z = apply("Add", {h, apply("Mul", {h, c})});
  std::vector<Gradients> seen;
  HookHandle handle = register_all_hook({a, h, c}, [&](const Gradients& g) { seen.push_back(g); });
  backward({z}, {}, {.keep_graph = true});
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(numbers(seen[0][0]), (Numbers{8}));
  EXPECT_EQ(numbers(seen[0][1]), (Numbers{4}));
  EXPECT_EQ(numbers(seen[0][2]), (Numbers{2}));
  grad({z}, {a}, {.keep_graph = true});  // c takes no part
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(numbers(seen[1][0]), (Numbers{8}));
  EXPECT_EQ(numbers(seen[1][1]), (Numbers{4}));
  EXPECT_FALSE(seen[1][2].defined());
  grad({z}, {b}, {.keep_graph = true});
  EXPECT_EQ(seen.size(), 3U);  // of h alone
  // A pass that fails is forgotten.
  HookHandle failing = h.register_hook([](const VariableGradient&) -> VariableGradient { throw Error("no"); });
  expect_contains(error_text([&] { backward({z}, {}, {.keep_graph = true}); }), "no");
  EXPECT_EQ(seen.size(), 3U);
  failing.remove();
  handle.remove();
  backward(z);
  EXPECT_EQ(seen.size(), 3U);
}

// One that never gets its gradient is not waited for beyond the end of the pass.
TEST_F(TapeHooksMoves, MultiGradAllHooksWithoutAGradient) {
  const Variable a = var({1}), b = var({2});
  const Function first_alone({
      .name = "FirstAlone",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{scaled(call.input(0), 1)}; },
      .backward =
          [](FunctionRun&, const Gradients& dy) {
            return Gradients{dy[0], {}};
          },
  });
  std::vector<Gradients> seen;
  register_all_hook({a, b}, [&](const Gradients& g) { seen.push_back(g); });
  backward(first_alone({a, b})[0]);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(numbers(seen[0][0]), (Numbers{1}));
  EXPECT_FALSE(seen[0][1].defined());
}

TEST_F(TapeHooksMoves, MultiGradAnyHooks) {
  const Variable a = var({1}), b = var({2});
  const Variable h = apply("Exp", {a}), z = apply("Mul", {h, b});
  std::vector<size_t> seen;
  HookHandle handle = register_any_hook({a, h, b}, [&](size_t which, const VariableGradient& g) {
    EXPECT_TRUE(g.defined());
    seen.push_back(which);
  });
  backward({z}, {}, {.keep_graph = true});
  EXPECT_EQ(seen, (std::vector<size_t>{2}));  // leaves run first
  backward({z}, {}, {.keep_graph = true, .inputs = {a}});
  EXPECT_EQ(seen, (std::vector<size_t>{2, 1}));
  handle.remove();
  backward(z);
  EXPECT_EQ(seen.size(), 2U);
}

}  // namespace
}  // namespace stepnet::autograd::testing::hooks_moves_test
