// Functions of the user's own: what they save, what they are asked for, and what they may return.
#include "stepnet/function.h"

#include <gtest/gtest.h>

#include "tests/core/autograd/function_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::function_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

Variable exp_of(const Variable& a) { return testing::apply("Exp", {a}); }
FunctionNode& node_of_function(const Variable& v) { return dynamic_cast<FunctionNode&>(*v.grad_fn()); }

// The header's example: y = exp(x) s.
Function scaled_exp() {
  return Function({
      .name = "ScaledExp",
      .forward =
          [](FunctionCall& call) {
            const Variable e = exp_of(call.input(0));
            const Variable y = mul(e, call.input(1));
            if (call.needs(0)) call.save("y", y);
            if (call.needs(1)) call.save("e", e);
            return std::vector<Variable>{y};
          },
      .backward =
          [](FunctionRun& pass, const Gradients& dy) {
            Gradients dx(2);
            if (pass.needs(0)) dx[0] = mul(dy[0].dense, pass.saved("y"));
            if (pass.needs(1)) dx[1] = mul(dy[0].dense, pass.saved("e"));
            return dx;
          },
  });
}

// x^3, from a saved input.
Function cube() {
  return Function({
      .name = "Cube",
      .forward =
          [](FunctionCall& call) {
            const Variable& x = call.input(0);
            call.save("x", x);
            return std::vector<Variable>{mul(mul(x, x), x)};
          },
      .backward =
          [](FunctionRun& pass, const Gradients& dy) {
            const Variable x = pass.saved("x");
            const Variable square = mul(x, x);
            return Gradients{
                mul(dy[0].dense, testing::apply("Add", {square, testing::apply("Add", {square, square})}))};
          },
  });
}

TEST_F(TapeFunction, TheExample) {
  const Function fn = scaled_exp();
  const Variable x = var({0, 1}), s = var({2, 3});
  const Variable y = fn({x, s})[0];
  const Numbers e = values_of(exp_of(x.detach()));
  EXPECT_EQ(values_of(y), (Numbers{2 * e[0], 3 * e[1]}));
  EXPECT_EQ(y.grad_fn()->name(), "ScaledExpGradient");
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), values_of(y));
  EXPECT_EQ(grad_of(s), e);
}

TEST_F(TapeFunction, SavesAndComputesOnlyWhatIsNeeded) {
  const Function fn = scaled_exp();
  const Variable x = var({0, 1}), s = constant({2, 3});
  const Variable y = fn({x, s})[0];
  EXPECT_NE(node_of_function(y).saved_value("y"), nullptr);
  EXPECT_EQ(node_of_function(y).saved_value("e"), nullptr);
  EXPECT_FALSE(fn({s, s})[0].requires_grad());
  // In the backward it follows the running pass.
  const Variable both = fn({x, var({1, 1})})[0];
  std::vector<bool> asked;
  const Function ask({
      .name = "Ask",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{mul(call.input(0), call.input(1))}; },
      .backward =
          [&](FunctionRun& pass, const Gradients& dy) {
            asked = {pass.needs(0), pass.needs(1)};
            return Gradients{dy[0], dy[0]};
          },
  });
  const Variable a = var({1}), b = var({2});
  const Variable z = ask({a, b})[0];
  grad({z}, {b}, {.keep_graph = true});
  EXPECT_EQ(asked, (std::vector<bool>{false, true}));
  backward({z}, {}, {.keep_graph = true, .inputs = {a}});
  EXPECT_EQ(asked, (std::vector<bool>{true, false}));
  backward(z);
  EXPECT_EQ(asked, (std::vector<bool>{true, true}));
}

TEST_F(TapeFunction, VersionsAreChecked) {
  const Variable x = var({0, 1}), s = var({2, 3});
  const Variable h = mul(x, constant({1, 1}));
  const Variable y = scaled_exp()({h, s})[0];
  apply_in_place("Mul", {y, constant({2, 2})});
  const std::string text = error_text([&] { backward(sum_of(y)); });
  expect_contains(text, "ScaledExpGradient: y, double[2], was saved at version");
  // Only what is read matters: the gradient of s takes exp(x).
  const Variable z = scaled_exp()({h, s})[0];
  const Variable w = sum_of(mul(z, constant({1, 1})));
  apply_in_place("Mul", {z, constant({2, 2})});
  EXPECT_EQ(numbers(grad({w}, {s})[0]), values_of(exp_of(x.detach())));
}

// Under create_graph the backward's operators are recorded, and saved inputs and outputs have their history.
TEST_F(TapeFunction, HigherOrders) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(cube()({x})[0]);
  const Variable first = grad({y}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(first), (Numbers{12, 27}));
  const Variable second = grad({sum_of(first)}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(second), (Numbers{12, 18}));
  EXPECT_EQ(numbers(grad({sum_of(second)}, {x})[0]), (Numbers{6, 6}));
  // By an output: d/dx of exp(x) s is itself.
  const Variable s = var({5, 7}), z = scaled_exp()({x, s})[0];
  const Variable dz = grad({sum_of(z)}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(numbers(grad({sum_of(dz)}, {x}, {.keep_graph = true})[0]), values_of(z));
  EXPECT_EQ(numbers(grad({sum_of(dz)}, {s})[0]), values_of(exp_of(x.detach())));
}

TEST_F(TapeFunction, CustomAutogradNoEarlyFree) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(cube()({x})[0]);
  const Variable first = grad({y}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(numbers(grad({y}, {x})[0]), (Numbers{12, 27}));
  EXPECT_EQ(values_of(first), (Numbers{12, 27}));
}

TEST_F(TapeFunction, CustomAutogradRepeatedGradGrad) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(cube()({x})[0]);
  for (int i = 0; i < 3; ++i) {
    const Variable first = grad({y}, {x}, {.create_graph = true})[0].dense;
    EXPECT_EQ(values_of(first), (Numbers{12, 27}));
    EXPECT_EQ(numbers(grad({sum_of(first)}, {x}, {.keep_graph = true})[0]), (Numbers{12, 18}));
  }
}

TEST_F(TapeFunction, SaveNoneForBackward) {
  const Function fn({
      .name = "Negated",
      .forward =
          [](FunctionCall& call) {
            call.save("nothing", Variable());
            call.save("x", call.input(0));
            call.save("nothing more", Variable());
            return std::vector<Variable>{testing::apply("Negative", {call.input(0)})};
          },
      .backward =
          [](FunctionRun& pass, const Gradients& dy) {
            EXPECT_FALSE(pass.saved("nothing").defined() || pass.saved("nothing more").defined());
            EXPECT_EQ(values_of(pass.saved("x")), (Numbers{1}));
            return Gradients{testing::apply("Negative", {dy[0].dense})};
          },
  });
  const Variable x = var({1});
  backward(fn({x})[0]);
  EXPECT_EQ(grad_of(x), (Numbers{-1}));
}

TEST_F(TapeFunction, SaveOutputNr) {
  const Function fn({
      .name = "Two",
      .forward =
          [](FunctionCall& call) {
            const Variable a = exp_of(call.input(0)), b = exp_of(call.input(0));
            call.save("b", b);
            return std::vector<Variable>{a, b};
          },
      .backward =
          [](FunctionRun& pass, const Gradients& dy) {
            const Variable b = pass.saved("b");
            EXPECT_EQ(b.output_index(), 1);
            EXPECT_EQ(b.grad_fn()->name(), "TwoGradient");
            return Gradients{mul(dy[1].dense, b)};
          },
  });
  const Variable x = var({0});
  backward(fn({x})[1]);
  EXPECT_EQ(grad_of(x), (Numbers{1}));
}

// Saved values reached through the node once they are gone.
TEST_F(TapeFunction, NaughtyAutogradFunctionStashingCtx) {
  const Variable x = var({1});
  std::shared_ptr<Node> node;
  {
    const Variable y = cube()({x})[0];
    node = y.grad_fn();
    EXPECT_EQ(values_of(dynamic_cast<FunctionNode&>(*node).saved("x")), (Numbers{1}));
    backward(y);
  }
  expect_contains(error_text([&] { dynamic_cast<FunctionNode&>(*node).saved("x"); }),
                  "CubeGradient: a backward pass has run here before and let go of the values that were saved");
}

TEST_F(TapeFunction, CustomFunctionSavedTensors) {
  const Variable x = var({3});
  const Variable y = cube()({x})[0];
  SavedValue* saved = node_of_function(y).saved_value("x");
  ASSERT_NE(saved, nullptr);
  EXPECT_TRUE(saved->holds());
  EXPECT_EQ(saved->packed(), nullptr);
  const SavedValueHooks hooks{.pack = [](const Tensor& t) { return std::any(t.clone()); },
                              .unpack = [](const std::any& packed) { return std::any_cast<Tensor>(packed); }};
  saved->register_hooks(hooks);
  EXPECT_NE(saved->packed(), nullptr);
  expect_contains(error_text([&] { saved->register_hooks(hooks); }), "has hooks already");
  EXPECT_EQ(node_of_function(y).saved_value("nobody"), nullptr);
  expect_contains(error_text([&] { node_of_function(y).saved("nobody"); }), "nothing was saved as \"nobody\"");
  backward(y);
  EXPECT_EQ(grad_of(x), (Numbers{27}));
  expect_contains(error_text([&] { saved->register_hooks(hooks); }), "has been released");
}

TEST_F(TapeFunction, ClearSavedTensorsOnAccess) {
  std::weak_ptr<Storage> bytes;
  bool gone = false;
  const Function fn({
      .name = "Taker",
      .forward =
          [&](FunctionCall& call) {
            const Variable e = exp_of(call.input(0));
            bytes = e.value().storage();
            call.save("e", e);
            return std::vector<Variable>{mul(e, e)};
          },
      .backward =
          [&](FunctionRun& pass, const Gradients& dy) {
            Gradients dx = {mul(dy[0].dense, pass.take_saved("e"))};
            gone = bytes.expired();
            if (gone) expect_contains(error_text([&] { pass.saved("e"); }), "let go of the values that were saved");
            return dx;
          },
  });
  const Variable x = var({0});
  const Variable y = fn({x})[0];
  backward({y}, {}, {.keep_graph = true});
  EXPECT_FALSE(gone);
  backward(y);
  EXPECT_TRUE(gone);
  EXPECT_EQ(grad_of(x), (Numbers{2}));
}

TEST_F(TapeFunction, BackwardTwice) {
  const Variable x = var({2});
  const Variable y = cube()({x})[0];
  backward(y);
  expect_contains(error_text([&] { backward(y); }), "a backward pass has run here before");
  // One that saved nothing may run again.
  const Function fn({
      .name = "Free",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{testing::apply("Scale", {call.input(0)})}; },
      .backward = [](FunctionRun&, const Gradients& dy) { return dy; },
  });
  const Variable z = fn({x})[0];
  backward(z);
  backward(z);
  EXPECT_EQ(grad_of(x), (Numbers{14}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::function_test
