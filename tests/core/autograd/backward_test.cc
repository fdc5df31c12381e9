// Backward passes: values, sums of gradients, roots.
#include <gtest/gtest.h>

#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::backward_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

TEST(Backward, OfAProduct) {
  const Variable a = var({1, 2, 3}), b = var({4, 5, 6});
  backward(sum_of(apply("Mul", {a, b})));
  EXPECT_EQ(grad_of(a), (Numbers{4, 5, 6}));
  EXPECT_EQ(grad_of(b), (Numbers{1, 2, 3}));
}

TEST(Backward, AddsWhereAVariableIsUsedTwice) {
  const Variable a = var({1, 2, 3});
  backward(sum_of(apply("Mul", {a, a})));
  EXPECT_EQ(grad_of(a), (Numbers{2, 4, 6}));
  backward(sum_of(apply("Add", {a, a})));
  EXPECT_EQ(grad_of(a), (Numbers{4, 6, 8}));
}

TEST(Backward, OfDerivatives) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {apply("Mul", {x, x}), x}));
  const Variable first = grad({y}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(first), (Numbers{12, 27}));
  const Variable second = grad({sum_of(first)}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(second), (Numbers{12, 18}));
  const Variable third = grad({sum_of(second)}, {x})[0].dense;
  EXPECT_EQ(values_of(third), (Numbers{6, 6}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Backward, RootsOfSeveralElementsNeedAGradient) {
  const Variable x = var({2, 3});
  const Variable y = apply("Mul", {x, x});
  expect_contains(error_text([&] { backward(y); }), "root 0 is double[2], and only one of a single element can start");
  backward({y}, {constant({1, 10})});
  EXPECT_EQ(grad_of(x), (Numbers{4, 60}));
}

TEST(Backward, ASecondPassNeedsTheGraphKept) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {x, x}));
  backward(y, {.keep_graph = true});
  backward(y);
  EXPECT_EQ(grad_of(x), (Numbers{8, 12}));
  expect_contains(error_text([&] { backward(y); }), "keep_graph");
}

TEST(Backward, InPlace) {
  const Variable x = var({2, 3}), k = constant({5, 7});
  const Variable y = apply("Exp", {x});
  const Variable z = apply("Mul", {x, k});
  apply_in_place("Mul", {z, k});
  EXPECT_EQ(values_of(z), (Numbers{50, 147}));
  backward(sum_of(z));
  EXPECT_EQ(grad_of(x), (Numbers{25, 49}));
  apply_in_place("Mul", {y, k});
  expect_contains(error_text([&] { backward(sum_of(y)); }), "written in place since");
}

TEST(Backward, LongChainsNeedNoStack) {
  const Variable x = var({1});
  Variable y = x;
  const Variable one = constant({1});
  for (int i = 0; i < 150000; ++i) y = apply("Add", {y, one});
  backward(y);
  EXPECT_EQ(grad_of(x), (Numbers{1}));
  y = {};
}

}  // namespace
}  // namespace stepnet::autograd::testing::backward_test
