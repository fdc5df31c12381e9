// Functions of the user's own: outputs without gradients, in place, absent gradients, and what a backward returns.
#include <gtest/gtest.h>

#include "tests/core/autograd/function_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::function_outputs_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

Variable twice(const Variable& x) { return run("Scale", {x}, {make_arg("scale", 2.0F)})[0]; }
Variable copy_of(const Variable& x) { return Variable(x.value().clone()); }

using Backward = std::function<Gradients(FunctionRun&, const Gradients&)>;

// Two copies of the input.
Function two_copies(const Backward& backward, bool zeros = true) {
  return Function({
      .name = "TwoCopies",
      .forward =
          [](FunctionCall& call) {
            return std::vector<Variable>{copy_of(call.input(0)), copy_of(call.input(0))};
          },
      .backward = backward,
      .zeros_for_absent = zeros,
  });
}
Function one_copy(const Backward& backward) {
  return Function({
      .name = "OneCopy",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{copy_of(call.input(0))}; },
      .backward = backward,
  });
}

TEST_F(TapeFunction, MaterializeGrads) {
  const Function fn = two_copies([](FunctionRun&, const Gradients& dy) {
    EXPECT_EQ(numbers(dy[0]), (Numbers{0, 0}));
    EXPECT_EQ(numbers(dy[1]), (Numbers{1, 1}));
    return Gradients{dy[1]};
  });
  const Variable x = var({1, 2});
  backward(sum_of(fn({x})[1]));
  EXPECT_EQ(grad_of(x), (Numbers{1, 1}));
}

TEST_F(TapeFunction, DontMaterializeGrads) {
  const Function fn = two_copies(
      [](FunctionRun&, const Gradients& dy) {
        EXPECT_FALSE(dy[0].defined());
        EXPECT_EQ(numbers(dy[1]), (Numbers{1, 1}));
        return Gradients{dy[1]};
      },
      false);
  const Variable x = var({1, 2});
  backward(sum_of(fn({x})[1]));
  EXPECT_EQ(grad_of(x), (Numbers{1, 1}));
}

TEST_F(TapeFunction, FunctionReturnsUndefinedTensor) {
  const Function fn = one_copy([](FunctionRun&, const Gradients&) { return Gradients(1); });
  const Variable x = var({1});
  backward(fn({x})[0]);
  EXPECT_FALSE(x.grad().defined());
  backward(fn({twice(x)})[0]);
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(grad({fn({x})[0]}, {x}, {.allow_unused = true})[0].defined());
}

TEST_F(TapeFunction, TooManyGrads) {
  const Function fn = one_copy([](FunctionRun&, const Gradients& dy) { return Gradients{dy[0], {}, {}}; });
  const Variable x = var({1});
  backward(fn({x})[0]);
  EXPECT_EQ(grad_of(x), (Numbers{1}));
  const Function more = one_copy([](FunctionRun&, const Gradients& dy) { return Gradients{dy[0], dy[0]}; });
  expect_contains(error_text([&] { backward(more({x})[0]); }),
                  "OneCopy has 1 inputs, but its backward has returned 2 gradients");
  const Function none = one_copy([](FunctionRun&, const Gradients&) { return Gradients{}; });
  expect_contains(error_text([&] { backward(none({x})[0]); }), "has returned 0 gradients");
}

TEST_F(TapeFunction, InvalidGradients) {
  const Function fn = one_copy([](FunctionRun&, const Gradients&) { return Gradients{constant({1, 2, 3})}; });
  const Variable x = var({1, 2});
  const std::string text = error_text([&] { backward(sum_of(fn({x})[0])); });
  expect_contains(text, "OneCopyGradient is double[2], but its gradient is double[3]");
}

TEST_F(TapeFunction, DepNograd) {
  const Function fn({
      .name = "WithFlag",
      .forward =
          [](FunctionCall& call) {
            const Variable flag = copy_of(call.input(0));
            call.no_gradient(flag);
            return std::vector<Variable>{copy_of(call.input(0)), flag};
          },
      .backward =
          [](FunctionRun&, const Gradients& dy) {
            EXPECT_EQ(numbers(dy[1]), (Numbers{0}));
            return Gradients{dy[0]};
          },
  });
  const Variable x = var({2});
  const std::vector<Variable> y = fn({x});
  EXPECT_TRUE(y[0].requires_grad());
  EXPECT_FALSE(y[1].requires_grad());
  backward(mul(y[0], y[1]));
  EXPECT_EQ(grad_of(x), (Numbers{2}));
}

TEST_F(TapeFunction, MarkNonDifferentiable) {
  const Function fn({
      .name = "IsPositive",
      .forward =
          [](FunctionCall& call) {
            const Variable zeros = testing::apply("ZerosLike", {call.input(0)});
            return std::vector<Variable>{testing::apply("GT", {call.input(0), zeros})};
          },
      .backward = [](FunctionRun&, const Gradients&) -> Gradients { throw Error("it has run"); },
  });
  const Variable x = var({2, -1});
  const Variable y = fn({x})[0];  // of bool, which has no gradient anyhow
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(y.is_leaf());
}

TEST_F(TapeFunction, MarkNonDifferentiableMixed) {
  const Function fn({
      .name = "Mixed",
      .forward =
          [](FunctionCall& call) {
            const Variable a = twice(call.input(0)), b = twice(call.input(0));
            call.no_gradient(a);
            return std::vector<Variable>{a, b};
          },
      .backward =
          [](FunctionRun&, const Gradients& dy) {
            EXPECT_EQ(numbers(dy[0]), (Numbers{0, 0}));
            EXPECT_EQ(numbers(dy[1]), (Numbers{1, 1}));
            return Gradients{twice(dy[1].dense)};
          },
  });
  const Variable x = var({1, 2});
  const std::vector<Variable> y = fn({x});
  EXPECT_FALSE(y[0].requires_grad());
  EXPECT_TRUE(y[1].requires_grad());
  backward(sum_of(y[1]));
  EXPECT_EQ(grad_of(x), (Numbers{2, 2}));
}

TEST_F(TapeFunction, MarkNonDifferentiableNone) {
  const Function fn({
      .name = "NoneToo",
      .forward =
          [](FunctionCall& call) {
            call.no_gradient(Variable());
            return std::vector<Variable>{twice(call.input(0)), Variable()};
          },
      .backward =
          [](FunctionRun&, const Gradients& dy) {
            EXPECT_FALSE(dy[1].defined());
            return Gradients{twice(dy[0].dense)};
          },
  });
  const Variable x = var({1});
  const std::vector<Variable> y = fn({x});
  EXPECT_FALSE(y[1].defined());
  backward(y[0]);
  EXPECT_EQ(grad_of(x), (Numbers{2}));
}

// Multiplies by two in place.
Function doubled_in_place(bool says_so, bool returns_it) {
  return Function({
      .name = "Doubled",
      .forward =
          [=](FunctionCall& call) {
            const Variable& x = call.input(0);
            if (says_so) call.overwrites(x);
            run("Scale", {x}, {make_arg("scale", 2.0F)}, {.in_place = true});
            return std::vector<Variable>{returns_it ? x : copy_of(x)};
          },
      .backward = [](FunctionRun&, const Gradients& dy) { return Gradients{twice(dy[0].dense)}; },
  });
}

TEST_F(TapeFunction, InPlace) {
  const Function fn = doubled_in_place(true, true);
  const Variable x = var({1, 2});
  const Variable h = twice(x);
  const uint64_t version = h.version();
  const Variable y = fn({h})[0];
  EXPECT_TRUE(y.is_same(h));
  EXPECT_GT(h.version(), version);
  EXPECT_EQ(h.grad_fn()->name(), "DoubledGradient");
  backward(sum_of(h));
  EXPECT_EQ(grad_of(x), (Numbers{4, 4}));
  // What was saved of it before is stale.
  const Variable e = testing::apply("Exp", {x});
  const Variable z = sum_of(e);
  fn({e});
  expect_contains(error_text([&] { backward(z); }), "written in place since");
  expect_contains(error_text([&] { fn({x}); }), "Doubled would write in place to a leaf that requires a gradient");
  {
    const NoGrad no_grad;
    fn({x});
  }
  EXPECT_EQ(values_of(x), (Numbers{2, 4}));
  EXPECT_TRUE(x.is_leaf());
}

TEST_F(TapeFunction, InPlaceMustBeSaid) {
  const Variable h = twice(var({1, 2}));
  expect_contains(error_text([&] { doubled_in_place(false, true)({h}); }),
                  "Doubled: input 0, double[2], was written in place without saying so");
  expect_contains(error_text([&] { doubled_in_place(true, false)({h}); }),
                  "Doubled: input 0, double[2], is overwritten, but is no output");
}

TEST_F(TapeFunction, OutputsThatShareBytes) {
  const Function fn({
      .name = "Same",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{call.input(0)}; },
      .backward = [](FunctionRun&, const Gradients& dy) { return Gradients{twice(dy[0].dense)}; },
  });
  const Variable x = var({1, 2});
  const Variable y = fn({x})[0];
  EXPECT_FALSE(y.is_same(x));
  EXPECT_TRUE(y.is_view());
  EXPECT_TRUE(y.value().shares_storage(x.value()));
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), (Numbers{2, 2}));
}

TEST_F(TapeFunction, ErrorsSayWhere) {
  const Function fn({.name = "Failing",
                     .forward = [](FunctionCall&) -> std::vector<Variable> { fail("no such thing"); },
                     .backward = nullptr});
  const std::string text = error_text([&] { fn({var({1})}); });
  expect_contains(text, "Failing: no such thing");
  expect_contains(text, "function_outputs_test.cc");
}

}  // namespace
}  // namespace stepnet::autograd::testing::function_outputs_test
