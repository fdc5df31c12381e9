// Nets captured from the tape: their bits are those of the eager run.
#include <gtest/gtest.h>

#include "core/autograd/variable_state.h"
#include "stepnet/function.h"
#include "stepnet/gradients.h"
#include "stepnet/rerun.h"
#include "stepnet/saved_value.h"
#include "tests/core/autograd/net/capture_testing.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"
#include "tools/bench/tape/hessian.h"

namespace stepnet::autograd::testing::capture_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;
using stepnet::testing::normal;
using Variables = std::vector<Variable>;

Variable leaf(const Shape& shape) { return Variable(normal<double>(shape), true); }
Variable given(const Shape& shape) { return Variable(normal<double>(shape)); }

int count(const NetDef& net, const std::string& type) {
  return static_cast<int>(std::ranges::count_if(net.op(), [&](const OperatorDef& op) { return op.type() == type; }));
}

TEST(Capture, AnMlpForwardAndBackward) {
  const Variable w1 = leaf({5, 3}), b1 = leaf({5}), w2 = leaf({2, 5}), b2 = leaf({2});
  const Captured c = expect_captured(
      [&](const Variables& in) {
        const Variable h = apply("Tanh", {apply("FC", {in[0], w1, b1})});
        const Variable loss = sum_of(apply("Sqr", {apply("FC", {h, w2, b2})}));
        const Gradients g = grad({loss}, {w1, b1, w2, b2});
        return Variables{loss, g[0].dense, g[1].dense, g[2].dense, g[3].dense};
      },
      {given({4, 3})}, {.name = "mlp", .inputs = {"x"}, .constants = {{"weights", w1}}});
  EXPECT_EQ(c.net.name(), "mlp");
  EXPECT_EQ(c.inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(c.outputs.size(), 5);
  EXPECT_EQ(c.constants.size(), 4);
  EXPECT_TRUE(c.constants.at("weights").shares_storage(w1.value()));
  EXPECT_TRUE(c.constants.contains("w1"));
}

TEST(Capture, AccumulatedGradientsAreOutputs) {
  const Variable w = leaf({3}), before = given({3});
  Variable again = leaf({3});
  again.set_grad(Variable(before.value().clone()));
  const Captured c = expect_captured(
      [&](const Variables& in) {
        const Variable y = apply("Mul", {apply("Mul", {in[0], w}), again});
        backward(sum_of(y), {.keep_graph = true});
        backward(sum_of(y));
        return Variables{y};
      },
      {given({3})});
  ASSERT_EQ(c.gradients.size(), 2);
  EXPECT_TRUE(c.gradients[0].leaf.is_same(w) || c.gradients[1].leaf.is_same(w));
  // What was there before is kept as it was.
  bool found = false;
  for (const auto& [name, value] : c.constants) found = found || same_bits(value, before.value());
  EXPECT_TRUE(found);
}

void expect_hessian(const std::string& activation, bench::HessianKind kind) {
  bench::Mlp<float> net({.layers = 4, .inputs = 3, .width = 8, .outputs = 1, .batch = 5}, activation);
  net.keep_seeds();
  Captured c;
  c = expect_captured(
      [&](const Variables&) {
        const bench::Hessian h = bench::hessian(net, kind);
        Variables made = {h.value, h.gradient};
        made.insert(made.end(), h.rows.begin(), h.rows.end());
        return made;
      },
      {net.x()});
  const bool loss_is_flat = activation == "Relu";
  EXPECT_EQ(c.gradients.size(), kind.with_backward ? net.leaves().size() : 0) << loss_is_flat;
}

TEST(Capture, Hessians) {
  for (const char* activation : {"Relu", "Tanh"})
    for (const bool trimmed : {true, false})
      for (const bool with_backward : {true, false}) expect_hessian(activation, {trimmed, with_backward});
}

TEST(Capture, InPlaceOperators) {
  const Variable w = leaf({3});
  const Captured c = expect_captured(
      [&](const Variables& in) {
        const Variable y = apply("Mul", {in[0], w});
        const Variable kept = apply("Sqr", {y});
        apply_in_place("Tanh", {y});
        const Variable z = apply("Add", {y, in[0]});
        apply_in_place("Sqr", {z});  // whose formula reads what was there
        return Variables{y, z, kept, grad({sum_of(apply("Mul", {z, z}))}, {w})[0].dense};
      },
      {given({3})});
  for (const OperatorDef& op : c.net.op())
    for (const std::string& out : op.output())
      EXPECT_EQ(std::ranges::count(op.input(), out), 0) << op.ShortDebugString();
}

TEST(Capture, AnInputAndAConstantThatAreOverwritten) {
  const Variable k = given({3}), x = given({3});
  const Tensor k_before = k.value().clone();
  const Captured c = expect_captured(
      [&](const Variables& in) {
        const Variable y = apply("Mul", {in[0], k});
        apply_in_place("Exp", {in[0]});
        apply_in_place("Negative", {k});
        return Variables{y, apply("Sub", {in[0], k}), in[0], k};
      },
      {x});
  ASSERT_EQ(c.constants.size(), 1);
  EXPECT_TRUE(same_bits(c.constants.begin()->second, k_before));
}

TEST(Capture, AStepOfTraining) {
  const Variable w = leaf({3}), x = given({3});
  const Captured c = expect_captured(
      [&](const Variables& in) {
        const Variable loss = sum_of(apply("Sqr", {apply("Mul", {in[0], w})}));
        const Variable g = grad({loss}, {w})[0].dense;
        const NoGrad no_grad;
        apply_in_place("Sub", {w, g});
        return Variables{loss};
      },
      {x}, {.constants = {{"w", w}}});
  ASSERT_EQ(c.written.size(), 1);
  EXPECT_EQ(c.written[0].over, "w");
  EXPECT_TRUE(c.written[0].bytes.shares_storage(w.value()));
  EXPECT_FALSE(c.constants.at("w").shares_storage(w.value()));
  // The next step begins where the first one ended.
  Captured next = c;
  next.constants["w"] = w.value();
  const std::vector<Tensor> made = run_captured_net(next, {x.value()});
  const Variable loss = sum_of(apply("Sqr", {apply("Mul", {x, w})}));
  EXPECT_TRUE(same_bits(made[0], loss.value()));
}

TEST(CaptureRefuses, WritesInParts) {
  const Variable k = given({2, 3}), row(k.value().rows(0, 1));
  const std::string error = error_text([&] {
    capture(
        [&](const Variables& in) {
          apply_in_place("Add", {k, in[0]});
          row.detach().copy_(Variable(in[1].value()));
          return Variables{apply("Copy", {in[0]})};
        },
        {given({2, 3}), given({1, 3})});
  });
  expect_contains(error, "in parts");
}

TEST(Capture, OnAGpu) {
  if (!device_offered(DeviceKind::cuda)) GTEST_SKIP() << "there is no GPU";
  bench::Mlp<float> net({.layers = 3, .inputs = 2, .width = 8, .outputs = 1, .batch = 5}, "Tanh",
                        {DeviceKind::cuda, 0});
  const Captured c = capture([&](const Variables&) { return bench::hessian(net, {true, true}).rows; }, {net.x()});
  for (const OperatorDef& op : c.net.op()) EXPECT_EQ(op.device_option().device_type(), CUDA) << op.ShortDebugString();
}

TEST(Capture, Copies) {
  Variable buffer = given({3});
  expect_captured(
      [&](const Variables& in) {
        buffer.copy_(in[0]);
        const Variable y = apply("Exp", {buffer});
        buffer.copy_(y);
        buffer.copy_(buffer.detach());
        return Variables{buffer, y};
      },
      {given({3})});
}

TEST(Capture, ViewsShowWhatIsWritten) {
  expect_captured(
      [](const Variables& in) {
        const NoGrad no_grad;
        const Variable y = apply("Exp", {in[0]}), view = apply("Alias", {y}), alias = y.detach();
        apply_in_place("Negative", {view});
        return Variables{apply("Sqr", {y}), apply("Tanh", {alias}), view};
      },
      {given({3})});
}

TEST(Capture, OtherShapesOfTheSameBytes) {
  const Captured c = expect_captured(
      [](const Variables& in) {
        const Variable y = apply("Exp", {in[0]});
        return Variables{apply("Sqr", {Variable(y.value().reshaped({3, 2}))})};
      },
      {given({2, 3})});
  EXPECT_EQ(count(c.net, "Reshape"), 1);
}

TEST(Capture, PartsOfBytesAreRefused) {
  const std::string error = error_text([] {
    capture(
        [](const Variables& in) {
          const Variable y = apply("Exp", {in[0]});
          return Variables{apply("Sqr", {Variable(y.value().rows(0, 1))})};
        },
        {given({2, 3})});
  });
  expect_contains(error, "a part of an input or of an operator's result");
  const Variable x = given({2, 3});
  const Variable row(x.value().rows(0, 1));
  expect_contains(error_text([&] { capture([&](const Variables&) { return Variables{row}; }, {x}); }), "a part of");
}

TEST(Capture, OverwrittenPartsAreRefused) {
  const Variable k = given({2, 3}), row(k.value().rows(0, 1)), other(k.value().rows(1, 1));
  const std::string error = error_text([&] {
    capture(
        [&](const Variables& in) {
          const Variable before = apply("Add", {k, in[0]});
          apply_in_place("Exp", {row});
          return Variables{before, apply("Sqr", {other}), apply("Sqr", {k})};
        },
        {given({2, 3})});
  });
  expect_contains(error, "overwritten");
  const Variable k2 = given({2, 3}), row2(k2.value().rows(0, 1)), other2(k2.value().rows(1, 1));
  expect_captured(
      [&](const Variables& in) {
        apply_in_place("Mul", {row2, in[0]});
        return Variables{apply("Sqr", {other2}), apply("Sqr", {row2})};
      },
      {given({1, 3})});
}

TEST(Capture, BroadcastSumsAndTheirGradients) {
  const Variable b = leaf({3}), s = leaf({2, 1});
  expect_captured(
      [&](const Variables& in) {
        const Variable y = broadcast("Mul", broadcast("Add", in[0], b), s);
        const Gradients g = grad({y}, {in[0], b, s}, {.grad_outputs = {in[1]}, .create_graph = true});
        const Gradients twice = grad({sum_of(apply("Sqr", {g[2].dense}))}, {b, in[1]});
        return Variables{y, g[0].dense, g[1].dense, g[2].dense, twice[0].dense, twice[1].dense};
      },
      {leaf({2, 3}), leaf({2, 3})});
}

TEST(Capture, ZerosOfUnusedInputs) {
  const Variable w = leaf({3}), unused = leaf({2, 2});
  const Captured c = expect_captured(
      [&](const Variables& in) {
        const Gradients g = grad({sum_of(apply("Mul", {in[0], w}))}, {w, unused}, {.materialize = true});
        return Variables{g[0].dense, g[1].dense, in[0], in[0]};
      },
      {given({3})});
  EXPECT_EQ(c.net.external_output_size(), 4);
}

Captured sparse(bool twice, bool dense_too) {
  const Variable table = leaf({6, 2});
  const Variable rows(Tensor::of<int64_t>({2, 2}, {1, 4, 1, 0}));
  return expect_captured(
      [&](const Variables& in) {
        Variable y = sum_of(apply("Mul", {apply("Gather", {table, rows}), in[0]}));
        if (twice) y = apply("Add", {y, sum_of(apply("Sqr", {apply("Gather", {table, rows})}))});
        if (dense_too) y = apply("Add", {y, sum_of(apply("Exp", {table}))});
        backward(y);
        return Variables{y};
      },
      {given({2, 2, 2})});
}

TEST(Capture, SparseGradients) {
  const Captured once = sparse(false, false);
  ASSERT_EQ(once.gradients.size(), 1);
  EXPECT_NE(once.gradients[0].indices, "");
  EXPECT_EQ(once.gradients[0].dense, "");
  sparse(true, false);
  const Captured dense = sparse(true, true);
  EXPECT_NE(dense.gradients[0].dense, "");
}

TEST(Capture, Recomputation) {
  const Variable w = leaf({3});
  const Captured c = expect_captured(
      [&](const Variables& in) {
        const Variable y = checkpoint(
            [&](const Variables& inside) {
              return Variables{apply("Exp", {apply("Tanh", {apply("Mul", {inside[0], w})})})};
            },
            {in[0]})[0];
        return Variables{y, grad({sum_of(apply("Sqr", {y}))}, {w})[0].dense};
      },
      {given({3})});
  EXPECT_EQ(count(c.net, "Tanh"), 2);
}

const char* const kCell = R"(
  name: "cell"
  op { type: "FC" input: "x" input: "w" input: "b" output: "h" }
  op { type: "Tanh" input: "h" output: "h" }
  op { type: "Mul" input: "h" input: "h" output: "y" })";

TEST(Capture, NetsAsNodes) {
  const NetFunction cell(parse_net_text(kCell), {"x", "w", "b"}, {"y"});
  const Variable w = leaf({3, 3}), b = leaf({3});
  const auto program = [&](bool recompute) {
    return [&, recompute](const Variables& in) {
      const auto run_cell = [&](const Variables& inside) { return cell({inside[0], w, b}); };
      const Variable y = recompute ? cell(checkpoint(run_cell, {in[0]}))[0] : cell({cell({in[0], w, b})[0], w, b})[0];
      const Variable g = grad({sum_of(y)}, {w}, {.create_graph = true})[0].dense;
      return Variables{y, g, grad({sum_of(apply("Sqr", {g}))}, {w, b, in[0]})[0].dense};
    };
  };
  const Captured c = expect_captured(program(false), {leaf({2, 3})});
  EXPECT_EQ(count(c.net, "Tanh"), 2);
  bool prefixed = false;
  for (const OperatorDef& op : c.net.op()) prefixed = prefixed || op.output(0) == "cell1/h";
  EXPECT_TRUE(prefixed) << to_text(c.net);
}

TEST(Capture, RecomputedNets) {
  const NetFunction cell(parse_net_text(kCell), {"x", "w", "b"}, {"y"});
  const Variable w = leaf({3, 3}), b = leaf({3});
  expect_captured(
      [&](const Variables& in) {
        const Variable y = checkpoint(
            [&](const Variables& inside) {
              return cell({cell({inside[0], w, b})[0], w, b});
            },
            {in[0]})[0];
        backward(sum_of(y));
        return Variables{y};
      },
      {leaf({2, 3})});
}

TEST(Capture, AGradientPassOverACapturedForward) {
  const Variable w = leaf({3, 3}), b = leaf({3}), x = leaf({2, 3});
  const auto loss_of = [&](const Variables& in) {
    return Variables{sum_of(apply("Tanh", {apply("FC", {in[0], in[1], in[2]})}))};
  };
  const Captured c = capture(loss_of, {x, w, b}, {.inputs = {"x", "w", "b"}});
  const Gradients should = grad({loss_of({x, w, b})}, {x, w, b});
  NetDef net = c.net;
  GradientRequest request;
  request.targets.emplace_back(c.outputs[0], "");
  request.wanted = {"x", "w", "b"};
  const GradientResult result = add_gradient_operators(net, request);
  Workspace workspace;
  feed(c, {x.value(), w.value(), b.value()}, workspace);
  RunContext context;
  run_net_once(net, workspace, context);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(same_bits(workspace.fetch(result.gradients.at(c.inputs[i]).dense), should[i].value())) << c.inputs[i];
  // And as a function of the tape.
  const NetFunction again(c.net, c.inputs, c.outputs);
  const Gradients g = grad({again({x, w, b})[0]}, {x, w, b});
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(g[i].value(), should[i].value()));
}

TEST(Capture, AnEagerGradientPassThatBeganBefore) {
  const Variable w = leaf({3}), x = given({3});
  const Variable y = apply("Exp", {apply("Mul", {x, w})});
  expect_captured(
      [&](const Variables& in) {
        return Variables{grad({y}, {w}, {.grad_outputs = {in[0]}, .keep_graph = true})[0].dense};
      },
      {given({3})});
}

TEST(Capture, EmptyTensorsAndScalars) {
  const Variable w = leaf({0, 3}), s = leaf({});
  expect_captured(
      [&](const Variables& in) {
        const Variable y = apply("Mul", {in[0], w});
        const Variable z = apply("Sqr", {s});
        backward({y, z}, {Variable(in[0].value()), VariableGradient()});
        return Variables{y, z};
      },
      {given({0, 3})});
}

// What cannot be captured.

std::string refusal(const TapeProgram& fn, const Variables& inputs) {
  const std::string text = error_text([&] { capture(fn, inputs); });
  EXPECT_EQ(tape_state().capture, nullptr);
  return text;
}

TEST(CaptureRefuses, ValuesFromNowhere) {
  expect_contains(refusal(
                      [](const Variables& in) {
                        Tensor t = in[0].value().clone();
                        t.data<double>()[0] += 1;
                        return Variables{apply("Exp", {Variable(t)})};
                      },
                      {given({3})}),
                  "made during the capture, but not by an operator");
  expect_captured(
      [](const Variables& in) {
        return Variables{apply("Mul", {in[0], captured_constant(Tensor::of<double>({3}, {1, 2, 3}))})};
      },
      {given({3})});
}

TEST(CaptureRefuses, FunctionsThatComputeBytes) {
  const auto raw = [](const Variable& v) {
    Tensor t = v.value().clone();
    for (double& x : t.span<double>()) x *= 2;
    return Variable(t);
  };
  const Function doubled({.name = "Doubled",
                          .forward = [&](FunctionCall& call) { return Variables{raw(call.input(0))}; },
                          .backward = [](FunctionRun&, const Gradients& dy) { return dy; }});
  expect_contains(refusal([&](const Variables& in) { return doubled({in[0]}); }, {given({3})}), "Doubled");
  const Function back({.name = "Back",
                       .forward = [&](FunctionCall& call) { return Variables{apply("Copy", {call.input(0)})}; },
                       .backward = [&](FunctionRun&, const Gradients& dy) { return Gradients{raw(dy[0].dense)}; }});
  const Variable w = leaf({3});
  expect_contains(
      refusal(
          [&](const Variables& in) {
            return Variables{
                grad(back({apply("Mul", {in[0], w})}), {w}, {.grad_outputs = {Variable(in[0].value())}})[0].dense};
          },
          {given({3})}),
      "Back");
  Variable buffer = given({3});
  const Function into({.name = "Into",
                       .forward =
                           [&](FunctionCall& call) {
                             buffer.unchecked_value().copy_from(call.input(0).value());
                             return Variables{buffer};
                           },
                       .backward = [](FunctionRun&, const Gradients& dy) { return dy; }});
  expect_contains(refusal([&](const Variables& in) { return into({in[0]}); }, {given({3})}), "Into");
}

TEST(Capture, FunctionsOfOperators) {
  const Function scaled({.name = "Scaled",
                         .forward =
                             [](FunctionCall& call) {
                               const Variable e = apply("Exp", {call.input(0)});
                               call.save("e", e);
                               return Variables{apply("Mul", {e, call.input(1)})};
                             },
                         .backward =
                             [](FunctionRun& pass, const Gradients& dy) {
                               const Variable e = pass.saved("e");
                               return Gradients{{}, apply("Mul", {dy[0].dense, e})};
                             }});
  const Variable s = leaf({3});
  expect_captured(
      [&](const Variables& in) {
        const Variable y = scaled({in[0], s})[0];
        return Variables{y, grad({sum_of(y)}, {s})[0].dense};
      },
      {given({3})});
}

// A function that says that it overwrites its input; by operators, or the bytes.
Function overwriting(bool by_operators) {
  return Function({.name = "Overwriting",
                   .forward =
                       [by_operators](FunctionCall& call) {
                         const Variable x = call.input(0);
                         call.overwrites(x);
                         if (by_operators)
                           apply_in_place("Sqr", {x});
                         else
                           x.state()->value.data<double>()[0] = 7;
                         return Variables{x};
                       },
                   .backward = [](FunctionRun&, const Gradients& dy) { return dy; }});
}

TEST(Capture, FunctionsThatOverwriteByOperators) {
  const Function fn = overwriting(true);
  expect_captured(
      [&](const Variables& in) {
        const Variable y = apply("Exp", {in[0]});
        fn({y});
        return Variables{apply("Tanh", {y})};
      },
      {given({3})});
}

TEST(CaptureRefuses, FunctionsThatOverwriteBytes) {
  const Function fn = overwriting(false);
  expect_contains(refusal(
                      [&](const Variables& in) {
                        const Variable y = apply("Exp", {in[0]});
                        fn({y});
                        return Variables{apply("Tanh", {y})};
                      },
                      {given({3})}),
                  "Overwriting");
}

TEST(CaptureRefuses, UnseenWrites) {
  // With a new version.
  expect_contains(refusal(
                      [](const Variables& in) {
                        Variable y = apply("Exp", {in[0]});
                        y.unchecked_value().data<double>()[0] = 7;
                        y.bump_version();
                        return Variables{apply("Negative", {y})};
                      },
                      {given({3})}),
                  "written during the capture, but not by an operator");
  // And without one.
  expect_contains(refusal(
                      [](const Variables& in) {
                        Variable y = apply("Exp", {in[0]});
                        y.unchecked_value().data<double>()[0] = 7;
                        return Variables{apply("Negative", {y})};
                      },
                      {given({3})}),
                  "makes another");
}

TEST(CaptureRefuses, HooksThatMakeBytes) {
  const Variable w = leaf({3});
  const SavedValueHooks hooks{[](const Tensor& t) { return std::any(t.clone()); },
                              [](const std::any& any) { return std::any_cast<Tensor>(any); }};
  const auto program = [&](const Variables& in) {
    const SavedValueHooksScope scope(hooks);
    return Variables{grad({sum_of(apply("Exp", {apply("Mul", {in[0], w})}))}, {w})[0].dense};
  };
  expect_contains(refusal(program, {given({3})}), "made during the capture");
}

TEST(CaptureRefuses, WhatANetDoesOtherwise) {
  const Variable w = leaf({3});
  expect_contains(
      refusal([](const Variables& in) { return run("Dropout", {in[0]}, {}, {.outputs = 2}); }, {given({3})}), "random");
  expect_contains(refusal(
                      [&](const Variables& in) {
                        const Variable y = sum_of(apply("Mul", {in[0], w}));
                        return Variables{grad({y}, {w}, {.threads = 2})[0].dense};
                      },
                      {given({3})}),
                  "several threads");
  expect_contains(refusal(
                      [&](const Variables& in) {
                        capture([](const Variables& inner) { return inner; }, in);
                        return in;
                      },
                      {given({3})}),
                  "inside another one");
  const Variable x = given({3});
  expect_contains(refusal([](const Variables& in) { return in; }, {x, x}), "the same bytes");
  expect_contains(refusal([](const Variables&) { return Variables{Variable()}; }, {x}), "output 0");
}

TEST(Capture, LeavesNoBytesBehind) {
  const Variable w = leaf({3});
  const Variable x = given({3});
  const auto program = [&](const Variables& in) {
    const Variable y = apply("Exp", {apply("Mul", {in[0], w})});
    return Variables{y, grad({sum_of(y)}, {w})[0].dense};
  };
  capture(program, {x});
  const int64_t before = live_bytes();
  capture(program, {x});
  EXPECT_EQ(live_bytes(), before);
}

}  // namespace
}  // namespace stepnet::autograd::testing::capture_test
