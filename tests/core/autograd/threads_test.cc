// Backward passes on several threads, and several passes at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "core/compute/threads.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::threads_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

Variable leaf(const Shape& shape, double first) {
  Tensor t = Tensor::empty(DType::float64, shape);
  double value = first;
  for (double& v : t.span<double>()) v = std::sin(value += 0.7);
  return Variable(std::move(t), true);
}

// Many branches of different lengths that share leaves and meet again.
Variable branches(const Variable& x, const Variable& w) {
  Variable total;
  for (int b = 0; b < 12; ++b) {
    Variable h = x;
    for (int i = 0; i <= b % 5; ++i) h = apply("Tanh", {apply("MatMul", {h, w})});
    h = apply("Mul", {h, x});
    total = total.defined() ? apply("Add", {total, h}) : h;
  }
  return sum_of(total);
}

std::vector<Numbers> gradients_on(int threads) {
  const Variable x = leaf({8, 8}, 1), w = leaf({8, 8}, 2);
  backward(branches(x, w), {.threads = threads});
  return {grad_of(x), grad_of(w)};
}

TEST(TapeThreads, AddInOneOrder) {
  std::vector<Numbers> expected;
  {
    const SerialScope serial;
    expected = gradients_on(1);
  }
  for (int round = 0; round < 30; ++round)
    for (const int threads : {2, 3, 7}) EXPECT_EQ(gradients_on(threads), expected) << threads;
}

TEST(TapeThreads, SecondOrder) {
  const Variable x = leaf({4, 4}, 1), w = leaf({4, 4}, 2);
  const auto second = [&](int threads) {
    const Variable y = branches(x, w);
    const Variable g = grad({y}, {x}, {.create_graph = true, .threads = threads})[0].dense;
    return values_of(grad({sum_of(apply("Mul", {g, g}))}, {w}, {.threads = threads})[0].dense);
  };
  EXPECT_EQ(second(3), second(1));
}

TEST(TapeThreads, AnErrorEndsThePass) {
  const Variable x = leaf({8, 8}, 1), w = leaf({8, 8}, 2);
  const Variable y = branches(x, w);
  Variable one = apply("Mul", {y, y});
  one.register_hook([](const VariableGradient&) -> VariableGradient { fail("the hook's words"); });
  expect_contains(error_text([&] { backward(apply("Add", {one, y}), {.threads = 4}); }), "the hook's words");
}

TEST(TapeThreads, NumbersOutOfRangeAreRefused) {
  const Variable x = var({1});
  expect_contains(error_text([&] { backward(apply("Mul", {x, x}), {.threads = 0}); }), "1 to 1024 threads, not 0");
}

TEST(TapeThreads, WhatIsToRunAtTheEndRunsOnce) {
  const Variable x = leaf({8, 8}, 1), w = leaf({8, 8}, 2);
  std::atomic<int> runs = 0;
  x.register_hook([&](const VariableGradient&) -> VariableGradient {
    when_done([&] { ++runs; });
    return {};
  });
  backward(branches(x, w), {.threads = 4});
  EXPECT_EQ(runs, 1);
}

// Each thread has a graph of its own over shared leaves.
TEST(TapeThreads, SeveralPassesAtOnce) {
  const Variable x = leaf({8, 8}, 1), w = leaf({8, 8}, 2);
  backward(branches(x, w));
  const Numbers once = grad_of(w);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) backward(branches(x, w));
    });
  for (std::thread& t : threads) t.join();
  const Numbers all = grad_of(w);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], 21 * once[i], 1e-9);
}

}  // namespace
}  // namespace stepnet::autograd::testing::threads_test
