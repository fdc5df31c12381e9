// Recording switched off and on, operators at which gradients end, and anomaly mode.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::modes_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

class TapeModes : public TapeTest {};

// Without recording: no history, no flag, nothing kept.
TEST_F(TapeModes, NoGrad) {
  const Variable x = var({2, 3}), k = var({5, 7});
  const int64_t before = live_bytes();
  const NoGrad no_grad;
  const Variable y = apply("Exp", {apply("Mul", {x, k})});
  EXPECT_EQ(live_bytes() - before, 64);  // y alone
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(y.grad_fn(), nullptr);
  expect_contains(error_text([&] { backward(sum_of(y)); }), "does not require a gradient");
}

// What requires a gradient: what is computed from something that does.
TEST_F(TapeModes, RequiresGrad) {
  Variable x = constant({2, 3}), n(Tensor::of<int32_t>({1}, {4}));
  const Variable k = constant({5, 7});
  EXPECT_FALSE(apply("Mul", {x, k}).requires_grad());
  x.set_requires_grad();
  EXPECT_TRUE(apply("Mul", {x, k}).requires_grad());
  EXPECT_FALSE(apply("Mul", {k, k}).requires_grad());
  expect_contains(error_text([&] { n.set_requires_grad(); }), "int32[1] cannot require a gradient");
  Variable y = apply("Negative", {x});
  expect_contains(error_text([&] { y.set_requires_grad(false); }), "use detach()");
}

// The mode nests, is restored on the way out, also by an exception, and belongs to the thread.
TEST_F(TapeModes, SetGradEnabled) {
  const Variable x = var({2, 3});
  const auto recorded = [&] { return apply("Negative", {x}).requires_grad(); };
  EXPECT_TRUE(recorded());
  {
    const NoGrad no_grad;
    EXPECT_FALSE(recorded());
    {
      const EnableGrad again;
      EXPECT_TRUE(recorded());
    }
    EXPECT_FALSE(recorded());
    bool elsewhere = false;
    std::thread([&] { elsewhere = recorded(); }).join();
    EXPECT_TRUE(elsewhere);
  }
  error_text([&] {
    const NoGrad no_grad;
    apply("Mul", {x, constant({1, 2, 3})});
  });
  EXPECT_TRUE(recorded());
}

// A pass inside a pass leaves the mode of the outer one as it was.
TEST_F(TapeModes, GradModeRestoredReentrant) {
  const Variable x = var({2, 3}), w = var({5, 7});
  for (const bool outer_records : {false, true}) {
    std::vector<bool> modes;
    const Variable y = own({x}, constant({1, 1}), [&](const Gradients& g, const NodeRun&) {
      modes.push_back(tape_state().recording);
      const EnableGrad enable;
      const Variable inner = sum_of(apply("Mul", {w, w}));
      for (const bool records : {false, true}) {
        grad({inner}, {w}, {.create_graph = records, .keep_graph = true});
        modes.push_back(tape_state().recording);
      }
      return Gradients{g[0]};
    });
    grad({sum_of(y)}, {x}, {.create_graph = outer_records});
    EXPECT_EQ(modes, (std::vector<bool>{outer_records, true, true}));
    EXPECT_TRUE(tape_state().recording);
  }
}

// Inside a pass that does not record nothing is, and the mode is back after an error too.
TEST_F(TapeModes, ModeInsideAPass) {
  const Variable x = var({2, 3});
  const Variable y = own({x}, constant({1, 1}), [](const Gradients& g, const NodeRun&) -> Gradients {
    EXPECT_FALSE(tape_state().recording);
    fail("no such derivative for {}", g[0].value());
  });
  expect_contains(error_text([&] { backward(sum_of(y)); }), "no such derivative for double[2]");
  EXPECT_TRUE(tape_state().recording);
  EXPECT_EQ(running_pass(), 0U);
}

// Outputs that are no floating-point numbers never require a gradient.
TEST_F(TapeModes, IntegerOutputs) {
  const Variable x = var({1, 3}, {2, 7, 3});
  EXPECT_FALSE(apply("ArgMax", {x}).requires_grad());
  const std::vector<Variable> top = run("TopK", {x}, {make_arg("k", 2)}, {.outputs = 2});
  EXPECT_TRUE(top[0].requires_grad());
  EXPECT_FALSE(top[1].requires_grad());
  EXPECT_FALSE(apply("GT", {x, x}).requires_grad());
}

// A branch through an output without a gradient is a constant, and its neighbours are differentiated.
TEST_F(TapeModes, DepNograd) {
  const Variable x = var({1, 3}, {2, 7, 3});
  const std::vector<Variable> top = run("TopK", {x}, {make_arg("k", 2)}, {.outputs = 2});
  const Variable places = run("Cast", {top[1]}, {make_arg("to", 13)})[0];
  EXPECT_FALSE(places.requires_grad());
  backward(sum_of(apply("Mul", {top[0], apply("Add", {places, var({1, 2}, {1, 1}, false)})})));
  EXPECT_EQ(grad_of(x), (Numbers{0, 2, 3}));
}

// The same of an operator that ends gradients; it saves nothing and does not count as history.
TEST_F(TapeModes, MarkNonDifferentiable) {
  const Variable x = var({2, 3});
  const Variable stopped = apply("StopGradient", {x});
  EXPECT_FALSE(stopped.requires_grad());
  backward(sum_of(apply("Mul", {x, stopped})));
  EXPECT_EQ(grad_of(x), (Numbers{2, 3}));
}

// In place it makes a constant of what was recorded.
TEST_F(TapeModes, MarkNonDifferentiableInPlace) {
  const Variable x = var({2, 3});
  const Variable y = apply("Negative", {x});
  apply_in_place("StopGradient", {y});
  EXPECT_FALSE(y.requires_grad());
}

// The first derivative of sqrt at 0, times 0.
Variable nan_in_backward(const Variable& x, Place place) {
  return sum_of(apply("Mul", {apply("Sqrt", {x}, place), constant({0, 0})}));
}

// A NaN names the derivative, the input and where the operator ran forward.
TEST_F(TapeModes, AnomalyDetectNan) {
  const Variable x = var({4, 0});
  const AnomalyMode anomaly;
  EXPECT_EQ(error_text([&] {
              backward(nan_in_backward(x, {"model.cc", 12}));
            }),
            "SqrtGradient has made a NaN in the gradient of input 0\n"
            "  at  Sqrt ran forward at model.cc:12");
  EXPECT_FALSE(x.grad().defined());
}

// The check can be left out, and is not made outside of the mode.
TEST_F(TapeModes, AnomalyModeNoCheckNan) {
  for (const bool anomalous : {false, true}) {
    const Variable x = var({4, 0});
    const auto mode = anomalous ? std::make_unique<AnomalyMode>(false) : nullptr;
    backward(nan_in_backward(x, {"model.cc", 12}));
    EXPECT_TRUE(std::isnan(grad_of(x)[1]));
  }
  EXPECT_FALSE(tape_state().anomaly);
}

// A NaN in a derivative of a derivative also says for which derivative that ran: of x to the power 1.5 the second is
// infinite at 0.
TEST_F(TapeModes, NestedAnomalyDetectNan) {
  const Variable x = var({4, 0});
  const AnomalyMode anomaly;
  const Variable y = run("Pow", {x}, {make_arg("exponent", 1.5F)}, {}, {"model.cc", 12})[0];
  const Variable first = grad({sum_of(y)}, {x}, {.create_graph = true})[0].dense;
  const std::string text = error_text([&] { backward(sum_of(apply("Mul", {first, constant({0, 0})}))); });
  expect_contains(text, "has made a NaN in the gradient of input 0");
  expect_contains(text, "for PowGradient, which ran forward at model.cc:12");
}

// A stale value's error says where the operator ran forward, in either mode; with the mode on, also for what.
TEST_F(TapeModes, AnomalyGradWarnings) {
  for (const bool anomalous : {false, true}) {
    const Variable x = var({4, 1});
    const auto mode = anomalous ? std::make_unique<AnomalyMode>() : nullptr;
    const Variable h = apply("Negative", {x});
    const Variable y = apply("Mul", {h, h}, {"model.cc", 12});
    const Variable first = grad({sum_of(y)}, {x}, {.create_graph = true})[0].dense;
    apply_in_place("Add", {h, constant({1, 1})});
    expect_contains(error_text([&] { backward(sum_of(y)); }), "Mul ran forward at model.cc:12");
    const Variable k = var({1, 1});
    const Variable product = sum_of(apply("Mul", {h, k}));
    apply_in_place("Add", {h, constant({1, 1})});
    expect_contains(error_text([&] { backward(product); }), "at  Mul ran forward at ");
    backward(sum_of(first));
  }
}

// Nodes keep those that made them, which is no cycle: all goes with the last variable.
TEST_F(TapeModes, AnomalyAssignParentCleanup) {
  const AnomalyMode anomaly;
  std::weak_ptr<Node> node;
  {
    const Variable x = var({2, 3});
    const Variable y = apply("Exp", {x});
    const Variable first = grad({sum_of(y)}, {x}, {.create_graph = true})[0].dense;
    ASSERT_NE(first.grad_fn(), nullptr);
    EXPECT_EQ(first.grad_fn()->parent(), y.grad_fn());
    node = y.grad_fn();
  }
  EXPECT_TRUE(node.expired());
}

}  // namespace
}  // namespace stepnet::autograd::testing::modes_test
