// Derivatives of derivatives.
#include <gtest/gtest.h>

#include "stepnet/function.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::higher_order_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

class TapeHigherOrder : public TapeTest {};

Numbers numbers(const VariableGradient& g) { return g.defined() ? values_of(g.dense) : Numbers{}; }

// x^2 + y x + y^2, with a Hessian of 2, 1, 1, 2.
Variable quadratic(const Variable& x, const Variable& y) {
  const Variable sum = apply("Add", {apply("Mul", {x, x}), apply("Mul", {y, x})});
  return apply("Add", {sum, apply("Mul", {y, y})});
}

TEST_F(TapeHigherOrder, HessianVector) {
  const Variable x = var({2, 2}, {1, 2, 3, 4}), y = var({2, 2}, {5, 6, 7, 8});
  const Variable ones = var({2, 2}, {1, 1, 1, 1}, false);
  const Variable z = quadratic(x, y);
  backward({z}, {ones}, {.create_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{7, 10, 13, 16}));
  EXPECT_EQ(grad_of(y), (Numbers{11, 14, 17, 20}));
  const Variable dx = x.grad().dense, dy = y.grad().dense;
  const Variable sum = apply("Add", {dx, dy});
  EXPECT_TRUE(sum.requires_grad());
  backward({sum}, {ones});
  // What was there before is not written to, as it has a graph that may read it.
  EXPECT_EQ(values_of(dx), (Numbers{7, 10, 13, 16}));
  EXPECT_EQ(grad_of(x), (Numbers{10, 13, 16, 19}));
  EXPECT_EQ(grad_of(y), (Numbers{14, 17, 20, 23}));
}

TEST_F(TapeHigherOrder, Grad) {
  const Variable x = var({2, 2}, {1, 2, 3, 4}), y = var({2, 2}, {5, 6, 7, 8});
  const Variable ones = var({2, 2}, {1, 1, 1, 1}, false);
  const Variable z = quadratic(x, y);
  const Gradients first = grad({z}, {x, y}, {.grad_outputs = {ones}, .create_graph = true});
  EXPECT_EQ(numbers(first[0]), (Numbers{7, 10, 13, 16}));
  const Variable sum = apply("Add", {first[0].dense, first[1].dense});
  const Gradients second = grad({sum}, {x, y}, {.grad_outputs = {ones}, .keep_graph = true});
  EXPECT_EQ(numbers(second[0]), (Numbers{3, 3, 3, 3}));
  EXPECT_EQ(numbers(second[1]), (Numbers{3, 3, 3, 3}));
  EXPECT_FALSE(x.grad().defined() || y.grad().defined());
  expect_contains(error_text([&] {
                    grad({sum}, {x}, {.grad_outputs = {constant({1, 2, 3})}});
                  }),
                  "root 0 is double[2, 2], but its gradient is double[3]");
}

TEST_F(TapeHigherOrder, OnceDifferentiable) {
  const Function square({
      .name = "Square",
      .forward =
          [](FunctionCall& call) {
            call.save("x", call.input(0));
            return std::vector<Variable>{apply("Mul", {call.input(0), call.input(0)})};
          },
      .backward =
          [](FunctionRun& pass, const Gradients& dy) {
            EXPECT_FALSE(tape_state().recording);
            const Variable slope = apply("Mul", {dy[0].dense, pass.saved("x")});
            return Gradients{apply("Add", {slope, slope})};
          },
      .once_differentiable = true,
  });
  const Variable x = var({3});
  const Variable y = square({x})[0];
  EXPECT_EQ(numbers(grad({y}, {x}, {.keep_graph = true})[0]), (Numbers{6}));
  const Variable first = grad({y}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(first), (Numbers{6}));
  EXPECT_TRUE(first.requires_grad());
  expect_contains(error_text([&] { grad({first}, {x}); }), "Square can be differentiated only once");
  backward({y}, {}, {.create_graph = true});
  expect_contains(error_text([&] { backward(x.grad().dense); }), "Square can be differentiated only once");
}

// An operator without a derivative is refused when it runs forward, as the tape knows then.
TEST_F(TapeHigherOrder, NotImplementedGrad) {
  const Variable x = var({1, 2});
  expect_contains(error_text([&] { apply("Summarize", {x}); }), "has no gradient with respect to its input");
  const auto forward = [](FunctionCall& call) { return std::vector<Variable>{testing::apply("Exp", call.inputs())}; };
  const Function none({.name = "None", .forward = forward, .backward = nullptr});
  const Variable y = sum_of(none({x})[0]);
  expect_contains(error_text([&] { backward(y); }), "None has no backward, but a gradient is wanted of it");
}

// The reference warns that a gradient with a graph owns its leaf, and so itself. Here it does not.
TEST_F(TapeHigherOrder, BackwardCreateGraphWarns) {
  const int64_t before = live_bytes();
  {
    const Variable x = var({2});
    backward({apply("Mul", {x, x})}, {}, {.create_graph = true});
    EXPECT_TRUE(x.grad().dense.requires_grad());
    EXPECT_GT(live_bytes(), before);
  }
  EXPECT_EQ(live_bytes(), before);
}

TEST_F(TapeHigherOrder, UnusedGradRequiresGradWithMaterialize) {
  const Variable x = var({1, 1}), y = var({1, 1});
  const Variable z = sum_of(apply("Mul", {x, x}));
  const Gradients g = grad({z}, {x, y}, {.create_graph = true, .materialize = true});
  EXPECT_TRUE(g[0].dense.requires_grad());
  EXPECT_FALSE(g[1].dense.requires_grad());
  EXPECT_EQ(numbers(g[1]), (Numbers{0, 0}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::higher_order_test
