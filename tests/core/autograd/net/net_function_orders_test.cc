// Nets as nodes, differentiated more than once: against central differences and against eager operators.
#include <gtest/gtest.h>

#include "tests/core/autograd/net_testing.h"

namespace stepnet::autograd::testing::net_function_orders_test {
namespace {

const std::vector<std::string> kInputs = {"x", "w", "b", "v"};

// Values in between are read by derivatives of every order, one of them in place of what it was.
NetFunction net() {
  return NetFunction(net_from(op_text("FC", {"x", "w", "b"}, {"h"}) + op_text("Tanh", {"h"}, {"h"}) +
                              op_text("Mul", {"h", "h"}, {"r"}) + op_text("MatMul", {"r", "v"}, {"s"}) +
                              op_text("Sigmoid", {"s"}, {"y"})),
                     kInputs, {"y", "h"});
}

std::vector<Variable> eager(const std::vector<Variable>& in) {
  const Variable h = apply("Tanh", {apply("FC", {in[0], in[1], in[2]})});
  return {apply("Sigmoid", {apply("MatMul", {apply("Mul", {h, h}), in[3]})}), h};
}

std::vector<Variable> inputs() {
  std::vector<Variable> all;
  for (const Shape& shape : {Shape{2, 3}, Shape{4, 3}, Shape{4}, Shape{4, 2}})
    all.emplace_back(numbers(shape, 1 + static_cast<double>(all.size())), true);
  return all;
}

Variable weighed(const Variable& v, double first) {
  return sum_of(apply("Mul", {v, Variable(numbers(v.shape(), first))}));
}

// A number made of the first gradients of all inputs, with history.
template <class F>
Variable first_order(const F& f, const std::vector<Variable>& in) {
  const std::vector<Variable> out = f(in);
  const Gradients g = grad({weighed(out[0], 1), weighed(out[1], 2)}, in, {.create_graph = true});
  Variable total;
  for (size_t i = 0; i < g.size(); ++i) {
    const Variable part = weighed(apply("Mul", {g[i].dense, g[i].dense}), static_cast<double>(i));
    total = total.defined() ? apply("Add", {total, part}) : part;
  }
  return total;
}

// The same of the gradients of that number.
template <class F>
Variable second_order(const F& f, const std::vector<Variable>& in) {
  const Gradients g = grad({first_order(f, in)}, in, {.create_graph = true});
  Variable total;
  for (const VariableGradient& part : g) {
    const Variable sum = weighed(part.dense, 3);
    total = total.defined() ? apply("Add", {total, sum}) : sum;
  }
  return total;
}

template <class Fn>
void expect_differences(const Fn& fn) {
  const std::vector<Variable> in = inputs();
  const Gradients g = grad({fn(in)}, in);
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < in.size(); ++i)
    for (int64_t k = 0; k < in[i].value().size(); ++k) {
      double value[2];
      for (const int side : {0, 1}) {
        std::vector<Variable> moved = inputs();
        moved[i].unchecked_value().data<double>()[k] += side == 0 ? kStep : -kStep;
        value[side] = values_of(fn(moved))[0];
      }
      const double expected = (value[0] - value[1]) / (2 * kStep);
      EXPECT_NEAR(values_of(g[i].dense)[k], expected, 1e-7 * std::max(1.0, std::abs(expected))) << kInputs[i];
    }
}

TEST(NetFunctionOrders, SecondIsCentralDifferences) {
  const NetFunction f = net();
  expect_differences([&](const std::vector<Variable>& in) { return first_order(f, in); });
}

TEST(NetFunctionOrders, ThirdIsCentralDifferences) {
  const NetFunction f = net();
  expect_differences([&](const std::vector<Variable>& in) { return second_order(f, in); });
}

TEST(NetFunctionOrders, AreThoseOfEagerOperators) {
  const std::vector<Variable> a = inputs(), b = inputs();
  backward(first_order(net(), a));
  backward(first_order([](const std::vector<Variable>& in) { return eager(in); }, b));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < grad_of(a[i]).size(); ++k) EXPECT_NEAR(grad_of(a[i])[k], grad_of(b[i])[k], 1e-12);
}

// Of what is not wanted no further operators run, and no value is read.
TEST(NetFunctionOrders, OfOneInputReadsWhatItNeeds) {
  const NetFunction f(net_from(op_text("Mul", {"x", "x"}, {"s"}) + op_text("Mul", {"s", "w"}, {"y"})), {"x", "w"},
                      {"y"});
  const Variable x = var({3}), w = var({5});
  const Variable first = grad({f({x, w})[0]}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(first), (Numbers{30}));
  EXPECT_EQ(values_of(grad({first}, {w}, {.keep_graph = true})[0].dense), (Numbers{6}));
  EXPECT_EQ(values_of(grad({first}, {x})[0].dense), (Numbers{10}));
}

TEST(NetFunctionOrders, LetGoOfEverything) {
  const int64_t before = live_bytes();
  {
    const NetFunction f = net();
    const std::vector<Variable> in = inputs();
    backward(second_order(f, in));
    const Variable kept = first_order(f, in);
  }
  EXPECT_EQ(live_bytes(), before);
}

}  // namespace
}  // namespace stepnet::autograd::testing::net_function_orders_test
