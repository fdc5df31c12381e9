// Passes inside of passes, callbacks, errors on the way, and several passes at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "stepnet/function.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::reentrancy_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;
using Words = std::vector<std::string>;

class TapeReentrancy : public TapeTest {};

using Backward = std::function<Gradients(FunctionRun&, const Gradients&)>;

// The input's values, and a backward of the test's own.
Function identity(const Backward& backward) {
  return Function({
      .name = "Identity",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{Variable(call.input(0).value().clone())}; },
      .backward = backward,
  });
}

TEST_F(TapeReentrancy, SimpleReentrant) {
  const Variable y = var({0.5, 2});
  const Function power({
      .name = "Power",
      .forward =
          [&](FunctionCall& call) {
            const EnableGrad enable;
            const Variable x(call.input(0).value().clone(), true);
            const Variable out = apply("Mul", {apply("Exp", {x}), y});
            call.data = std::vector<Variable>{x, out};
            return std::vector<Variable>{out.detach()};
          },
      .backward =
          [](FunctionRun& pass, const Gradients& dy) {
            const auto kept = std::any_cast<std::vector<Variable>>(pass.data());
            const EnableGrad enable;
            backward(sum_of(kept[1]));
            return Gradients{apply("Mul", {kept[0].grad().dense, dy[0].dense})};
          },
  });
  const Variable x = var({0, 0});
  const Variable out = power({x})[0];
  backward(sum_of(out));
  EXPECT_EQ(grad_of(x), (Numbers{0.5, 2}));
  EXPECT_EQ(grad_of(y), (Numbers{1, 1}));
}

TEST_F(TapeReentrancy, ReentrantChildError) {
  const Variable a = var({1}), b = var({2});
  const Variable bad =
      identity([](FunctionRun&, const Gradients&) -> Gradients { throw Error("Simulate error"); })({a})[0];
  const Function outer = identity([&](FunctionRun&, const Gradients& dy) {
    backward({bad}, {}, {.keep_graph = true});
    return dy;
  });
  const Variable z = outer({b})[0];
  expect_contains(error_text([&] { backward(z); }), "Simulate error");
  EXPECT_TRUE(tape_state().recording);
  EXPECT_EQ(tape_state().depth, 0);
  EXPECT_EQ(running_pass(), 0U);
}

// 2,000 passes inside one another.
TEST_F(TapeReentrancy, DeepReentrant) {
  int deepest = 0;
  std::function<std::vector<Variable>(const Variable&)> deep;
  const Function fn({
      .name = "Deep",
      .forward =
          [](FunctionCall& call) {
            const EnableGrad enable;
            const Variable x(call.input(0).value().clone(), true);
            const Variable less = apply("Sub", {x, constant({1})});
            call.data = less;
            return std::vector<Variable>{less.detach()};
          },
      .backward =
          [&](FunctionRun& pass, const Gradients& dy) {
            const auto less = std::any_cast<Variable>(pass.data());
            deepest = std::max(deepest, tape_state().depth);
            if (values_of(less)[0] < 0) return dy;
            const EnableGrad enable;
            backward(sum_of(deep(less)[0]));
            return dy;
          },
  });
  deep = [&](const Variable& x) { return fn({x}); };
  const Variable x = var({1999});
  backward(sum_of(fn({x})[0]));
  EXPECT_EQ(deepest, 2000);
  EXPECT_EQ(grad_of(x), (Numbers{1}));
}

TEST_F(TapeReentrancy, DeepReentrantError) {
  std::function<Gradients(int)> go = [&](int depth) -> Gradients {
    if (depth == 0) throw Error("at the bottom");
    const EnableGrad enable;
    const Variable x = var({1});
    const Function fn = identity([&go, depth](FunctionRun&, const Gradients& dy) {
      go(depth - 1);
      return dy;
    });
    backward(fn({x})[0]);
    return {};
  };
  expect_contains(error_text([&] { go(200); }), "at the bottom");
  EXPECT_EQ(tape_state().depth, 0);
}

TEST_F(TapeReentrancy, ReentrantPriority) {
  Words order;
  const Function plain = identity([&](FunctionRun&, const Gradients& dy) {
    order.push_back("plain");
    return dy;
  });
  const Function nested = identity([&](FunctionRun&, const Gradients& dy) {
    order.push_back("nested");
    if (order.size() < 6) {
      const EnableGrad enable;
      const Variable x = var({static_cast<double>(order.size())});
      backward(plain({x})[0]);
    }
    return dy;
  });
  // The passes inside are over before what was ready outside goes on.
  const Variable a = var({1}), b = var({2});
  const Variable z = apply("Mul", {nested({plain({a})[0]})[0], nested({b})[0]});
  backward(z);
  EXPECT_EQ(order, (Words{"nested", "plain", "nested", "plain", "plain"}));
}

TEST_F(TapeReentrancy, GradModeRestoredReentrant) {
  const Variable other = var({3});
  const Function fn = identity([&](FunctionRun&, const Gradients& dy) {
    const bool before = tape_state().recording;
    const Gradients g = [&] {
      const EnableGrad enable;
      return grad({apply("Mul", {other, other})}, {other}, {.create_graph = true});
    }();
    EXPECT_TRUE(g[0].dense.requires_grad());
    EXPECT_EQ(tape_state().recording, before);
    return dy;
  });
  const Variable x = var({1});
  const Variable y = fn({x})[0];
  backward({y}, {}, {.create_graph = true});
  backward({y}, {}, {});
  EXPECT_TRUE(tape_state().recording);
}

// Callbacks of a pass run once, at its end, and those of one inside of it at that one's.
TEST_F(TapeReentrancy, ReentrantWithCallbacksBothDepths) {
  Words order;
  const Variable inner = var({1});
  const Function in = identity([&](FunctionRun&, const Gradients& dy) {
    when_done([&] { order.push_back("inner done"); });
    order.push_back("inner");
    return dy;
  });
  const Function out = identity([&](FunctionRun&, const Gradients& dy) {
    when_done([&] { order.push_back("outer done"); });
    const EnableGrad enable;
    backward(in({inner})[0]);
    order.push_back("outer");
    return dy;
  });
  const Variable x = var({1});
  backward(out({x})[0]);
  EXPECT_EQ(order, (Words{"inner", "inner done", "outer", "outer done"}));
  expect_contains(error_text([] { when_done([] {}); }), "no backward pass is running");
}

TEST_F(TapeReentrancy, ReentrantWithCallbacksDepth0) {
  int called = 0;
  const Variable inner = var({1});
  const Function out = identity([&](FunctionRun&, const Gradients& dy) {
    when_done([&] { ++called; });
    const EnableGrad enable;
    for (int i = 0; i < 3; ++i) backward(apply("Exp", {inner}));
    EXPECT_EQ(called, 0);
    return dy;
  });
  const Variable x = var({1});
  backward(out({x})[0]);
  EXPECT_EQ(called, 1);
}

TEST_F(TapeReentrancy, ReentrantWithCallbacksDepth1) {
  int called = 0;
  const Variable inner = var({1});
  const Function in = identity([&](FunctionRun&, const Gradients& dy) {
    when_done([&] { ++called; });
    return dy;
  });
  const Function out = identity([&](FunctionRun&, const Gradients& dy) {
    const EnableGrad enable;
    backward(in({inner})[0]);
    EXPECT_EQ(called, 1);
    return dy;
  });
  const Variable x = var({1});
  backward(out({x})[0]);
  EXPECT_EQ(called, 1);
}

TEST_F(TapeReentrancy, CallbackAddsCallback) {
  int called = 0;
  const Function fn = identity([&](FunctionRun&, const Gradients& dy) {
    when_done([&, held = std::vector<int>(100, 1)] {
      for (int i = 0; i < 20; ++i) when_done([&] { ++called; });
      called += held[99];
    });
    return dy;
  });
  const Variable x = var({1});
  backward(fn({x})[0]);
  EXPECT_EQ(called, 21);
}

// A pass that fails while other nodes wait: it ends, and nobody waits for ever.
TEST_F(TapeReentrancy, PynodeDestructionDeadlock) {
  const Variable x = var({1});
  const Function bad = identity([](FunctionRun&, const Gradients&) -> Gradients { throw Error("broken"); });
  Variable sum = apply("Exp", {x});
  for (int i = 0; i < 10; ++i) sum = apply("Add", {sum, bad({apply("Exp", {x})})[0]});
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      expect_contains(error_text([&] { backward({sum}, {}, {.keep_graph = true}); }), "broken");
    }).join();
  }
}

TEST_F(TapeReentrancy, IsolatedNode) {
  const Variable x = var({1, 5}), y = var({3, 4});
  const Variable a = apply("Add", {x, y});
  const Variable picked = run("ArgMax", {a}, {make_arg("axis", 0)})[0];
  EXPECT_FALSE(picked.requires_grad());
  const Variable stopped = apply("StopGradient", {a});
  EXPECT_FALSE(stopped.requires_grad());
  backward(sum_of(apply("Mul", {a, stopped})));
  EXPECT_EQ(grad_of(x), (Numbers{4, 9}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::reentrancy_test
