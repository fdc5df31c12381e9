// Forward mode on the tape: tangents through operators, in-place writes, views, saved values, nested levels, functions
// and nets; Jacobian- and Hessian-vector products.
#include <gtest/gtest.h>

#include <cmath>

#include "core/gradcheck/runs.h"
#include "stepnet/function.h"
#include "stepnet/net_function.h"
#include "stepnet/offload.h"
#include "stepnet/rerun.h"
#include "stepnet/text.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::forward_mode_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;
using Variables = std::vector<Variable>;

class ForwardMode : public TapeTest {};

void expect_near(const Variable& v, const Numbers& numbers, double tolerance = 1e-12) {
  ASSERT_TRUE(v.defined());
  const Numbers values = values_of(v);
  ASSERT_EQ(values.size(), numbers.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], numbers[i], tolerance) << "element " << i;
}

TEST_F(ForwardMode, OfAProduct) {
  const Jvp r = jvp(
      [](const Variables& x) {
        return Variables{apply("Mul", {x[0], x[1]})};
      },
      {constant({2, 3}), constant({5, 7})}, {constant({1, 0}), constant({10, 100})});
  expect_near(r.outputs[0], {10, 21});
  expect_near(r.tangents[0], {25, 300});
  EXPECT_FALSE(r.tangents[0].requires_grad());
}

TEST_F(ForwardMode, WhatDoesNotMoveHasZeros) {
  const Variable c = constant({4});
  const Jvp r = jvp(
      [&](const Variables& x) {
        return Variables{apply("Sqr", {c}), apply("Sqr", {x[0]}), x[1]};
      },
      {constant({3}), constant({8})}, {constant({1}), Variable()});
  expect_near(r.tangents[0], {0});
  expect_near(r.tangents[1], {6});
  expect_near(r.tangents[2], {0});
}

TEST_F(ForwardMode, TangentsEndWithTheirLevel) {
  const Variable x = var({3});
  Variable y, t;
  {
    const TangentLevel level;
    y = apply("Sqr", {level.dual(x, constant({1}))});
    t = level.tangent(y);
    EXPECT_FALSE(level.tangent(x).defined()) << "the original does not move";
    EXPECT_FALSE(level.tangent(y.detach()).defined());
  }
  expect_near(t, {6});
  expect_near(grad({t}, {x})[0].dense, {2});  // reverse over forward: 2 x
  const TangentLevel other;
  EXPECT_FALSE(other.tangent(y).defined());
  EXPECT_FALSE(other.tangent(apply("Sqr", {y})).defined());
}

TEST_F(ForwardMode, GradientsOfMovingVariablesMove) {
  const Variable x = var({2, 3});
  const TangentLevel level;
  const Variable z = level.dual(x, constant({1, 10}));
  const Variable loss = sum_of(apply("Mul", {z, apply("Sqr", {z})}));  // x^3
  const Variable g = grad({loss}, {x})[0].dense;
  expect_near(g, {12, 27});
  expect_near(level.tangent(g), {12, 180});  // 6 x v
  EXPECT_FALSE(g.requires_grad());
}

// A leaf's gradient accumulates, in place, and its tangent does so too.
TEST_F(ForwardMode, AccumulatedGradientsMove) {
  const Variable x = var({2, 3});
  const TangentLevel level;
  for (int pass = 1; pass <= 2; ++pass) {
    const Variable z = level.dual(x, constant({1, 10}));
    backward(sum_of(apply("Mul", {z, apply("Sqr", {z})})));
    const double n = pass;
    expect_near(x.grad().dense, {12 * n, 27 * n});
    expect_near(level.tangent(x.grad().dense), {12 * n, 180 * n});
  }
}

// Several gradients arrive at one node and are added, in place where nobody else sees them.
TEST_F(ForwardMode, SumsOfGradientsMove) {
  const Variable x = var({2});
  const TangentLevel level;
  const Variable z = level.dual(x, constant({1}));
  const Variable s = apply("Sqr", {z});
  const Variable loss = apply("Add", {apply("Add", {apply("Mul", {s, s}), apply("Sqr", {s})}), apply("Mul", {s, z})});
  const Variable g = grad({loss}, {x})[0].dense;  // 2 x^4 + x^3
  expect_near(g, {8 * 8 + 3 * 4});
  expect_near(level.tangent(g), {24 * 4 + 6 * 2});
}

TEST_F(ForwardMode, InPlaceWritesMove) {
  const TangentLevel level;
  const Variable y = run("Copy", {level.dual(constant({2, 3}), constant({1, 1}))})[0];
  apply_in_place("Sqr", {y});
  expect_near(level.tangent(y), {4, 6});
  apply_in_place("Mul", {y, y});
  expect_near(level.tangent(y), {32, 108});  // x^4
  Variable c = constant({1, 1});
  apply_in_place("Add", {c, y});
  expect_near(level.tangent(c), {32, 108});
  c.copy_(constant({0, 0}));
  EXPECT_FALSE(level.tangent(c).defined());
  c.copy_(y);
  expect_near(level.tangent(c), {32, 108});
}

TEST_F(ForwardMode, ViewsOfWhatMovesAreNotWritten) {
  const TangentLevel level;
  const Variable y = run("Copy", {level.dual(constant({2}), constant({1}))})[0];
  const Variable view = apply("Alias", {y});
  expect_near(level.tangent(view), {1});
  expect_contains(error_text([&] { apply_in_place("Sqr", {view}); }), "would write in place to a view");
  apply_in_place("Sqr", {y});
  expect_contains(error_text([&] { apply("Sqr", {view}); }), "take the view again");
  const Variable c = constant({1}), of_constant = apply("Alias", {c});
  expect_contains(error_text([&] { apply_in_place("Mul", {of_constant, y}); }), "would write in place to a view");
  apply_in_place("Mul", {c, y});
  expect_contains(error_text([&] { apply("Sqr", {of_constant}); }), "take the view again");
  expect_near(level.tangent(apply("Alias", {c})), {4});
}

TEST_F(ForwardMode, LevelsNest) {
  // d/dx of x * (d/dy of x + y at y = 1): perturbations that are confused would give 2.
  const auto inner = [](const Variable& x) {
    const Jvp r = jvp(
        [&](const Variables& y) {
          return Variables{apply("Add", {x, y[0]})};
        },
        {constant({1})}, {constant({1})});
    return apply("Mul", {x, r.tangents[0]});
  };
  const Jvp r = jvp([&](const Variables& x) { return Variables{inner(x[0])}; }, {constant({5})}, {constant({1})});
  expect_near(r.outputs[0], {5});
  expect_near(r.tangents[0], {1});
}

// The n-th derivative of x^4 by forward mode inside forward mode.
Variable nested(const Variable& x, int order) {
  if (order == 0) return apply("Mul", {apply("Sqr", {x}), apply("Sqr", {x})});
  return jvp([&](const Variables& in) { return Variables{nested(in[0], order - 1)}; }, {x}, {constant({1})})
      .tangents[0];
}

TEST_F(ForwardMode, OfAnyOrder) {
  const Variable x = constant({3});
  for (const auto& [order, expected] : std::vector<std::pair<int, double>>{{1, 108}, {2, 108}, {3, 72}, {4, 24}})
    expect_near(nested(x, order), {expected}, 1e-9);
}

// All orders of the two modes: forward and reverse inside one another.
TEST_F(ForwardMode, HessianVectorProductsCanBeDifferentiated) {
  const Variable x = var({2, 3});
  const auto cube = [](const Variables& in) { return Variables{sum_of(apply("Mul", {in[0], apply("Sqr", {in[0]})}))}; };
  const Hvp r = hvp(cube, {x}, {constant({1, 2})});
  expect_near(r.value, {8 + 27});
  expect_near(r.gradients[0], {12, 27});
  expect_near(r.products[0], {12, 36});                               // 6 x v
  expect_near(grad({sum_of(r.products[0])}, {x})[0].dense, {6, 12});  // 6 v
  const Jvp third = jvp(
      [&](const Variables& in) {
        return hvp(cube, in, {constant({1, 2})}).products;
      },
      {constant({2, 3})}, {constant({1, 1})});
  expect_near(third.tangents[0], {6, 12});
  const Hvp of_constant = hvp(cube, {constant({2, 3})}, {constant({1, 2})});
  expect_near(of_constant.products[0], {12, 36});
  EXPECT_FALSE(of_constant.products[0].requires_grad());
  EXPECT_FALSE(of_constant.value.requires_grad());
}

// Of inputs that are one variable, or computed from one another, derivatives are partial ones.
TEST_F(ForwardMode, DerivativesArePartial) {
  const auto fn = [](const Variables& in) { return Variables{apply("Mul", {in[0], apply("Sqr", {in[1]})})}; };
  const Variable x = var({3}), square = apply("Sqr", {x});
  const auto same = jacobian(fn, {x, x});
  expect_near(same[0][0], {9});
  expect_near(same[0][1], {18});
  const auto chained = jacobian(fn, {x, square});
  expect_near(chained[0][0], {81});
  expect_near(chained[0][1], {54});
  const Hvp h = hvp(fn, {x, x}, {constant({1}), Variable()});
  expect_near(h.gradients[0], {9});
  expect_near(h.gradients[1], {18});
  expect_near(h.products[0], {0});
  expect_near(h.products[1], {6});
}

TEST_F(ForwardMode, OfWhatAFunctionCaptures) {
  const Variable w = var({2}), x = constant({3}), one = constant({1});
  const auto fn = [&](const Variables& in) { return Variables{apply("Mul", {w, apply("Sqr", {in[0]})})}; };
  const Hvp h = hvp(fn, {x}, {one});
  expect_near(grad({h.value}, {w}, {.keep_graph = true})[0].dense, {9});
  expect_near(grad({h.gradients[0]}, {w}, {.keep_graph = true})[0].dense, {6});
  expect_near(grad({h.products[0]}, {w})[0].dense, {2});
  expect_near(grad({jacobian(fn, {x})[0][0]}, {w})[0].dense, {6});
  const auto cube = [](const Variables& in) { return Variables{apply("Mul", {in[0], apply("Sqr", {in[0]})})}; };
  const Variable v = var({2});
  expect_near(grad({hvp(cube, {x}, {v}).products[0]}, {v})[0].dense, {18});
  const NoGrad no_grad;
  EXPECT_FALSE(hvp(fn, {x}, {one}).products[0].requires_grad());
}

TEST_F(ForwardMode, ValuesOfHessianVectorProductsMove) {
  const Variable one = constant({1});
  const auto cube = [](const Variables& in) { return Variables{apply("Mul", {in[0], apply("Sqr", {in[0]})})}; };
  const auto all = [&](const Variables& in) {
    const Hvp h = hvp(cube, in, {one});
    return Variables{h.value, h.gradients[0], h.products[0]};
  };
  const Jvp r = jvp(all, {constant({2})}, {one});
  expect_near(r.tangents[0], {12});
  expect_near(r.tangents[1], {12});
  expect_near(r.tangents[2], {6});
}

TEST_F(ForwardMode, StaleViewsAreNoInputs) {
  const Variable base = constant({1}), view = apply("Alias", {base});
  apply_in_place("Mul", {base, var({2})});
  const auto square = [](const Variables& in) { return Variables{apply("Sqr", {in[0]})}; };
  expect_contains(error_text([&] { hvp(square, {view}, {constant({1})}); }), "take the view again");
}

TEST_F(ForwardMode, JacobiansAndHessians) {
  const auto fn = [](const Variables& x) { return Variables{apply("Mul", {x[0], x[1]})}; };
  const auto j = jacobian(fn, {constant({2, 3}), constant({5, 7})});
  ASSERT_EQ(j.size(), 1U);
  expect_near(j[0][0], {5, 0, 0, 7});
  expect_near(j[0][1], {2, 0, 0, 3});
  EXPECT_EQ(j[0][0].shape(), (Shape{2, 2}));
  const auto h = hessian([&](const Variables& x) { return Variables{sum_of(apply("Sqr", {fn(x)[0]}))}; },
                         {constant({2, 3}), constant({5, 7})});
  expect_near(h[0][0], {2 * 25, 0, 0, 2 * 49});
  expect_near(h[0][1], {4 * 10, 0, 0, 4 * 21});
  expect_near(h[1][0], {4 * 10, 0, 0, 4 * 21});
  expect_near(h[1][1], {2 * 4, 0, 0, 2 * 9});
  const auto empty = jacobian([](const Variables& x) { return Variables{apply("Sqr", {x[0]})}; },
                              {Variable(Tensor::zeros(DType::float64, {0, 3}))});
  EXPECT_EQ(empty[0][0].shape(), (Shape{0, 0, 3}));
}

// What is known to be zero is zeros, not an Error, and nothing runs for it.
TEST_F(ForwardMode, SecondDerivativesThatAreZero) {
  const auto relu = [](const Variables& x) { return Variables{sum_of(apply("Relu", {x[0]}))}; };
  const Variable x = var({2, -3});
  expect_near(hvp(relu, {x}, {constant({1, 1})}).products[0], {0, 0});
  const Variable g = grad({relu({x})[0]}, {x}, {.create_graph = true})[0].dense;
  expect_near(g, {1, 0});
  const Count runs(TapeEvent::node_run);
  expect_near(grad({sum_of(g)}, {x})[0].dense, {0, 0});
  EXPECT_EQ(runs(), 0);
  backward(sum_of(grad({relu({x})[0]}, {x}, {.create_graph = true})[0].dense));
  expect_near(x.grad().dense, {0, 0});
}

// --- Saved values ----------------------------------------------------------------------------------------------------

// What a node saved of an input that is overwritten has the tangent from before, whoever else reads it.
TEST_F(ForwardMode, SavedInputsThatAreOverwrittenKeepTheirTangents) {
  const TangentLevel level;
  const Variable w = var({3});
  const Variable y = run("Copy", {level.dual(constant({2}), constant({1}))})[0];
  apply_in_place("Mul", {y, w});
  const Variable g = grad({sum_of(y)}, {w})[0].dense;
  expect_near(g, {2});
  expect_near(level.tangent(g), {1});
}

TEST_F(ForwardMode, WritesThatAreNotRecordedLeaveSavedTangents) {
  const TangentLevel level;
  const Variable x = var({3});
  const Variable y = run("Copy", {level.dual(x, constant({1}))})[0];
  apply_in_place("Sqr", {y});
  {
    const NoGrad no_grad;
    apply_in_place("Sqr", {y});
  }
  const Variable g = grad({sum_of(y)}, {x})[0].dense;
  expect_near(g, {6});
  expect_near(level.tangent(g), {2});
}

TEST_F(ForwardMode, TangentsThatWereOverwrittenAreStale) {
  const TangentLevel level;
  const Variable x = var({3}), v = constant({1});
  const Variable y = apply("Sqr", {level.dual(x, v)});
  apply_in_place("Add", {v, constant({9})});
  expect_near(level.tangent(y), {6});
  expect_contains(error_text([&] { grad({y}, {x}); }), "it was written in place since");
}

TEST_F(ForwardMode, SavedValuesKeepTheirTangentsThroughHooks) {
  int packed = 0, unpacked = 0;
  const SavedValueHooks hooks{.pack =
                                  [&](const Tensor& t) {
                                    ++packed;
                                    return std::any(t.clone());
                                  },
                              .unpack =
                                  [&](const std::any& object) {
                                    ++unpacked;
                                    return std::any_cast<Tensor>(object);
                                  }};
  const Variable x = var({2});
  const TangentLevel level;
  Variable loss;
  {
    const SavedValueHooksScope scope(hooks);
    const Variable z = level.dual(x, constant({1}));
    loss = apply("Mul", {z, apply("Exp", {z})});
  }
  EXPECT_GT(packed, 0);
  const Variable g = grad({loss}, {x})[0].dense;
  EXPECT_GT(unpacked, 0);
  expect_near(g, {3 * std::exp(2.0)});
  expect_near(level.tangent(g), {4 * std::exp(2.0)});
}

TEST_F(ForwardMode, TangentsOfSavedValuesGoWithThem) {
  const Variable x(Tensor::zeros(DType::float64, {1000}), true);
  const TangentLevel level;
  const int64_t before = live_bytes();
  {
    const Variable v(Tensor::zeros(DType::float64, {1000}));
    Variable y = level.dual(x, v);
    for (int i = 0; i < 10; ++i) y = apply("Tanh", {y});
    const int64_t held = live_bytes() - before;
    grad({sum_of(y)}, {x});
    y = {};
    EXPECT_GE(held, 2 * 10 * 8000) << "values and tangents, for backward";
  }
  EXPECT_EQ(live_bytes(), before);
}

TEST_F(ForwardMode, RegionsThatAreComputedAgainAreRefused) {
  const Variable x = var({2});
  const TangentLevel level;
  const Variable z = level.dual(x, constant({1}));
  expect_contains(
      error_text([&] { checkpoint([](const Variables& in) { return Variables{apply("Sqr", {in[0]})}; }, {z}); }),
      "an input has a tangent");
}

// --- Functions -------------------------------------------------------------------------------------------------------

Function square(bool with_tangents) {
  Function::Spec spec{.name = "Square",
                      .forward =
                          [](FunctionCall& call) {
                            call.save("x", call.input(0));
                            return Variables{apply("Sqr", {call.input(0)})};
                          },
                      .backward =
                          [](FunctionRun& pass, const Gradients& dy) {
                            const Variable x = pass.saved("x");
                            return Gradients{apply("Mul", {dy[0].dense, apply("Add", {x, x})})};
                          }};
  if (with_tangents)
    spec.tangents = [](const Variables& in, const Variables&, const Variables& t) {
      return Variables{apply("Mul", {t[0], apply("Add", {in[0], in[0]})})};
    };
  return Function(spec);
}

TEST_F(ForwardMode, OfFunctions) {
  const Variable x = var({3});
  const auto cube = [&](const Variables& in) { return Variables{apply("Mul", {in[0], square(true)({in[0]})[0]})}; };
  expect_near(jvp(cube, {x}, {constant({2})}).tangents[0], {54});
  expect_near(hvp(cube, {x}, {constant({2})}).products[0], {36});
  expect_near(nested(x, 2), {108}, 1e-9);
  const Jvp twice = jvp([&](const Variables& in) { return jvp(cube, in, {constant({1})}).tangents; }, {constant({3})},
                        {constant({1})});
  expect_near(twice.tangents[0], {18});
  expect_contains(
      error_text([&] { jvp([&](const Variables& in) { return square(false)(in); }, {x}, {constant({2})}); }),
      "the function has no forward mode");
}

TEST_F(ForwardMode, FunctionsWhoseGradientsWouldLoseTangents) {
  const Function hidden({.name = "Hidden",
                         .forward =
                             [](FunctionCall& call) {
                               const Variable e = apply("Exp", {call.input(0)});
                               call.save("e", e);
                               return Variables{apply("Sqr", {e})};
                             },
                         .backward =
                             [](FunctionRun& pass, const Gradients& dy) {
                               const Variable e = pass.saved("e");
                               return Gradients{apply("Mul", {dy[0].dense, apply("Sqr", {e})})};
                             },
                         .tangents =
                             [](const Variables&, const Variables& out, const Variables& t) {
                               return Variables{apply("Mul", {t[0], apply("Add", {out[0], out[0]})})};
                             }});
  const auto fn = [&](const Variables& in) { return Variables{sum_of(hidden(in)[0])}; };
  expect_near(jvp(fn, {var({0})}, {constant({1})}).tangents[0], {2});
  expect_contains(error_text([&] { hvp(fn, {var({0})}, {constant({1})}); }), "which is no input and no output");
}

// Levels that begin inside a function's callables are seen there, and levels around are not.
TEST_F(ForwardMode, FunctionsMayUseForwardModeThemselves) {
  const auto slope = [](const Variables& in) {  // of x^3
    return jvp(
               [](const Variables& x) {
                 return Variables{apply("Mul", {x[0], apply("Sqr", {x[0]})})};
               },
               in, {constant({1})})
        .tangents;
  };
  const Function function({.name = "Slope",
                           .forward = [&](FunctionCall& call) { return slope({call.input(0)}); },
                           .backward = nullptr,
                           .tangents = [&](const Variables& in, const Variables&,
                                           const Variables& t) { return jvp(slope, in, t).tangents; }});
  const auto once = [&](const Variables& in) { return jvp(function, in, {constant({1})}); };
  expect_near(once({constant({2})}).outputs[0], {12});
  expect_near(once({constant({2})}).tangents[0], {12});
  const Jvp twice = jvp([&](const Variables& in) { return once(in).tangents; }, {constant({2})}, {constant({1})});
  expect_near(twice.tangents[0], {6});
}

// --- Nets ------------------------------------------------------------------------------------------------------------

NetDef tanh_layer() {
  return parse_net_text(R"(name: "layer"
    op { type: "FC" input: "x" input: "w" input: "b" output: "s" }
    op { type: "Tanh" input: "s" output: "y" })",
                        "test");
}

Variable layer_by_operators(const Variables& in) { return run("Tanh", run("FC", in))[0]; }

TEST_F(ForwardMode, OfNets) {
  const NetFunction net(tanh_layer(), {"x", "w", "b"}, {"y"});
  const Variables in = {var({2, 2}, {.1, .2, .3, -.4}), var({3, 2}, {.5, -.6, .7, .8, -.9, .1}), var({.1, .2, .3})};
  const Variables along = {var({2, 2}, {1, 2, 3, 4}, false), var({3, 2}, {1, -1, 2, .5, 0, 1}, false), Variable()};
  const auto by_net = [&](const Variables& v) { return Variables{sum_of(apply("Sqr", {net(v)[0]}))}; };
  const auto by_ops = [&](const Variables& v) { return Variables{sum_of(apply("Sqr", {layer_by_operators(v)}))}; };
  const Jvp a = jvp(by_net, in, along), b = jvp(by_ops, in, along);
  expect_near(a.tangents[0], values_of(b.tangents[0]));
  const Hvp p = hvp(by_net, in, along), q = hvp(by_ops, in, along);
  for (size_t i = 0; i < in.size(); ++i) {
    expect_near(p.gradients[i], values_of(q.gradients[i]));
    expect_near(p.products[i], values_of(q.products[i]));
    expect_near(grad({a.tangents[0]}, {in[i]}, {.keep_graph = true})[0].dense,
                values_of(grad({b.tangents[0]}, {in[i]}, {.keep_graph = true})[0].dense));
  }
  // A net that does not move gets a gradient that does.
  const TangentLevel level;
  const Variable z = level.dual(in[0], along[0]);
  const Variable g =
      grad({sum_of(apply("Mul", {net({in[0], in[1], in[2]})[0], layer_by_operators({z, in[1], in[2]})}))}, {in[2]})[0]
          .dense;
  EXPECT_TRUE(level.tangent(g).defined());
}

TEST_F(ForwardMode, OfRecurrentLayers) {
  const auto uniform = [](const Shape& shape, double scale) {
    Tensor t = Tensor::empty(DType::float64, shape);
    for (int64_t i = 0; i < t.size(); ++i) t.data<double>()[i] = scale * std::sin(1.7 * static_cast<double>(i) + scale);
    return Variable(t, true);
  };
  const Variables in = {uniform({3, 2, 2}, 1), uniform({1, 2, 3}, .5), uniform({1, 2, 3}, .4), uniform({12, 2}, .8),
                        uniform({12, 3}, .6),  uniform({12}, .3),      uniform({12}, .2)};
  const auto loss = [](const Variables& v) {
    return Variables{sum_of(apply("Sqr", {run("LSTM", v, {make_arg("hidden", 3)})[0]}))};
  };
  Variables along;
  for (const Variable& v : in) along.push_back(uniform(v.shape(), .9).detach());
  const Hvp product = hvp(loss, in, along);
  const Jvp slope = jvp(loss, in, along);
  constexpr double kStep = 1e-5;
  const auto gradient_at = [&](double step) {
    Variables moved;
    for (size_t i = 0; i < in.size(); ++i) {
      Tensor t = in[i].value().clone();
      for (int64_t k = 0; k < t.size(); ++k) t.data<double>()[k] += step * along[i].value().data<double>()[k];
      moved.emplace_back(t, true);
    }
    const Variable value = loss(moved)[0];
    Gradients g = grad({value}, moved);
    std::vector<Numbers> numbers = {values_of(value)};
    for (const VariableGradient& one : g) numbers.push_back(values_of(one.dense));
    return numbers;
  };
  const auto up = gradient_at(kStep), down = gradient_at(-kStep);
  EXPECT_NEAR(values_of(slope.tangents[0])[0], (up[0][0] - down[0][0]) / (2 * kStep), 1e-8);
  for (size_t i = 0; i < in.size(); ++i) {
    const Numbers values = values_of(product.products[i]);
    for (size_t k = 0; k < values.size(); ++k)
      EXPECT_NEAR(values[k], (up[i + 1][k] - down[i + 1][k]) / (2 * kStep), 1e-7) << "input " << i;
  }
}

TEST_F(ForwardMode, Mistakes) {
  const auto same = [](const Variables& x) { return x; };
  expect_contains(error_text([&] { jvp(same, {constant({1})}, {}); }), "there are 1 inputs, but 0 directions");
  expect_contains(error_text([&] { jvp(same, {constant({1})}, {constant({1, 2})}); }), "cannot move along");
  expect_contains(error_text([&] { hvp(same, {constant({1, 2})}, {constant({1, 2})}); }), "one output of one element");
  const Variable integers(Tensor::of<int32_t>({1}, {1}));
  expect_contains(error_text([&] { jvp(same, {integers}, {integers}); }), "only floating-point elements do");
}

}  // namespace
}  // namespace stepnet::autograd::testing::forward_mode_test
