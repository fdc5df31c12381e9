// Several passes at once over one graph.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "core/autograd/group_hooks.h"
#include "stepnet/function.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::shared_graphs_test {

class TapeSharedGraphs : public TapeTest {};

namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

constexpr int kThreads = 4;

void on_threads(const std::function<void(int)>& fn) {
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&fn, t] { fn(t); });
  for (std::thread& thread : threads) thread.join();
}

// A chain that saves a value in every node.
Variable chain(Variable h, int length) {
  for (int i = 0; i < length; ++i) h = apply("Tanh", {h});
  return h;
}

// Each pass has its own graph; the leaf is everybody's.
TEST_F(TapeSharedGraphs, GraphsOverOneLeaf) {
  const Variable x = var({1, 2});
  on_threads([&](int) {
    for (int i = 0; i < 50; ++i) backward(sum_of(apply("Mul", {x, x})));
  });
  EXPECT_EQ(grad_of(x), (Numbers{2 * 50 * kThreads, 4 * 50 * kThreads}));
}

TEST_F(TapeSharedGraphs, OneGraphThatIsKept) {
  const Variable x = var({1, 2});
  const Variable h = apply("Mul", {x, x});
  std::vector<Variable> roots;
  for (int t = 0; t < kThreads; ++t) roots.push_back(sum_of(apply("Mul", {h, x})));
  on_threads([&](int t) {
    for (int i = 0; i < 20; ++i) backward({roots[t]}, {}, {.keep_graph = true});
  });
  EXPECT_EQ(grad_of(x), (Numbers{3 * 20 * kThreads, 12 * 20 * kThreads}));
}

// Different needs at once: no pass sees those of another.
TEST_F(TapeSharedGraphs, EachPassHasItsOwnNeeds) {
  const Variable a = var({2}), b = var({3});
  const Variable z = apply("Mul", {chain(a, 5), chain(b, 5)});
  const Numbers da = values_of(grad({z}, {a}, {.keep_graph = true})[0].dense);
  const Numbers db = values_of(grad({z}, {b}, {.keep_graph = true})[0].dense);
  on_threads([&](int t) {
    for (int i = 0; i < 50; ++i) {
      const Variable& by = t % 2 == 0 ? a : b;
      EXPECT_EQ(values_of(grad({z}, {by}, {.keep_graph = true})[0].dense), t % 2 == 0 ? da : db);
    }
  });
  EXPECT_FALSE(a.grad().defined());
}

// The first pass lets go of what the other is to read.
TEST_F(TapeSharedGraphs, TheSecondOfTwoPassesIsRefused) {
  const Variable x = var({1});
  const Variable shared = apply("Exp", {x});
  std::barrier half(2);
  shared.grad_fn()->edges()[0].node->register_post_hook([&](const Gradients&, const Gradients&) -> Gradients {
    half.arrive_and_wait();  // the first pass has run through `shared`
    half.arrive_and_wait();
    return {};
  });
  const Variable first = apply("Scale", {shared}), second = apply("Scale", {shared});
  std::thread other([&] { backward(first); });
  half.arrive_and_wait();
  expect_contains(error_text([&] { backward(second); }), "a backward pass has run here before");
  half.arrive_and_wait();
  other.join();
  EXPECT_EQ(grad_of(x), values_of(shared));
}

// Without any order between them each pass either works or is refused, and the gradient is that of those that worked.
TEST_F(TapeSharedGraphs, PassesThroughASharedGraph) {
  for (int round = 0; round < 20; ++round) {
    const Variable x = var({0.5});
    const Variable h = chain(x, 20);
    std::vector<Variable> roots;
    for (int t = 0; t < kThreads; ++t) roots.push_back(apply("Scale", {h}));
    const double slope = values_of(grad({roots[0]}, {x}, {.keep_graph = true})[0].dense)[0];
    std::atomic<int> worked{0};
    on_threads([&](int t) {
      const std::string problem = error_text([&] {
        backward(roots[t]);
        throw Error("it worked");
      });
      if (problem.find("it worked") != std::string::npos)
        ++worked;
      else
        expect_contains(problem, "a backward pass has run here before");
    });
    ASSERT_GE(worked, 1);
    EXPECT_NEAR(grad_of(x)[0], worked * slope, 1e-12);
  }
}

TEST_F(TapeSharedGraphs, GroupHooksTellPassesApart) {
  const Variable a = var({1}), b = var({2});
  std::atomic<int> called{0};
  register_all_hook({a, b}, [&](const Gradients& g) {
    EXPECT_EQ(values_of(g[0].dense)[0] * 2, values_of(g[1].dense)[0]);
    ++called;
  });
  on_threads([&](int t) {
    const Variable k = constant({1.0 + t}), l = constant({2.0 + 2 * t});
    for (int i = 0; i < 20; ++i) grad({apply("Add", {apply("Mul", {a, k}), apply("Mul", {b, l})})}, {a, b});
  });
  EXPECT_EQ(called, 20 * kThreads);
}

// A hook that unpacks may run passes of its own, also when they meet on another thread.
TEST_F(TapeSharedGraphs, UnpackingRunsPasses) {
  const Variable x = var({2}), y = var({3});
  Variable mine, theirs;
  const auto recorded = [](const Variable& v, const Variable& other) {
    const SavedValueHooksScope scope({
        .pack = [](const Tensor& t) { return std::any(t.clone()); },
        .unpack =
            [&other](const std::any& packed) {
              const EnableGrad enable;
              if (other.defined()) grad({apply("Exp", {other})}, {other});
              return std::any_cast<Tensor>(packed);
            },
    });
    return apply("Mul", {v, v});
  };
  mine = recorded(x, y);
  theirs = recorded(y, x);
  on_threads([&](int t) {
    for (int i = 0; i < 20; ++i) grad({t % 2 == 0 ? mine : theirs}, {t % 2 == 0 ? x : y}, {.keep_graph = true});
  });
}

}  // namespace
}  // namespace stepnet::autograd::testing::shared_graphs_test
