// Gradients of gradients: a second pass over a net that has a backward pass already.
#include <gtest/gtest.h>

#include "stepnet/net.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gradients_second_order_test {
namespace {

const Shape kShape = {3, 3};

void feed(Workspace& workspace) {
  uint64_t seed = 30;
  for (const char* name : {"x", "w", "g"}) workspace.tensor(name) = normal<double>(kShape, seed++);
}

// The net of the gradient of `y` (given "g") and, in it, the gradient of the sum of x's gradient. "" if the numbers
// are those of central differences of x's gradient, for each of `inputs`.
std::string check_second_order(const Lines& lines, const std::vector<std::string>& inputs) {
  const Backward first = differentiate(lines, {{"y", "g"}}, {"x"});
  const std::string slope = first.map.at("x");
  const Backward second = differentiate(first.net, {{slope, ""}}, {inputs.begin(), inputs.end()});
  for (int i = second.result.first_gradient_op; i < second.net.op_size(); ++i)
    for (const std::string& name : second.net.op(i).output())
      if (!name.empty() && !name.starts_with("g2/")) return "the second pass writes " + name;
  Workspace workspace;
  feed(workspace);
  Net net(second.net, workspace);
  RunContext run;
  for (const std::string& input : inputs) {
    if (second.map.count(input) == 0) return "no gradient of " + input;
    feed(workspace);
    net.run(run);
    const Tensor analytic = workspace.fetch(second.map.at(input)).clone();
    Tensor numeric = Tensor::zeros(DType::float64, kShape);
    for (int64_t i = 0; i < kShape.size(); ++i) {
      double difference = 0;
      for (const double step : {1e-5, -1e-5}) {
        feed(workspace);
        workspace.tensor(input).data<double>()[i] += step;
        net.run(run);
        for (const double v : workspace.fetch(slope).span<double>()) difference += step > 0 ? v : -v;
      }
      numeric.data<double>()[i] = difference / 2e-5;
    }
    const std::string wrong = compare(analytic, numeric, 1e-7);
    if (!wrong.empty()) return input + ": " + wrong;
  }
  return "";
}

TEST(SecondOrder, Mul) { EXPECT_EQ(check_second_order({"y = Mul(x, w)"}, {"g", "w"}), ""); }

TEST(SecondOrder, Cube) { EXPECT_EQ(check_second_order({"s = Mul(x, x)", "y = Mul(s, x)"}, {"x", "g"}), ""); }

TEST(SecondOrder, AddAndNegative) {
  EXPECT_EQ(check_second_order({"n = Negative(x)", "a = Add(n, w)", "y = Mul(a, n)"}, {"x", "w", "g"}), "");
}

TEST(SecondOrder, MatMul) {
  EXPECT_EQ(check_second_order({"y = MatMul(x, w)"}, {"g", "w"}), "");
  EXPECT_EQ(check_second_order({"s = MatMul(x, w)", "y = MatMul(x, s) trans_b=1"}, {"x", "w", "g"}), "");
}

TEST(SecondOrder, Tanh) { EXPECT_EQ(check_second_order({"t = Tanh(x)", "y = Mul(t, w)"}, {"x", "w", "g"}), ""); }

TEST(SecondOrder, NamesAndThirdOrder) {
  const Backward first = differentiate(Lines{"s = Mul(x, x)", "y = Mul(s, x)"}, {{"y", "g"}}, {"x"});
  const Backward second = differentiate(first.net, {{first.map.at("x"), ""}}, {"x"});
  EXPECT_TRUE(second.map.at("x").starts_with("g2/")) << second.map.at("x");
  const Backward third = differentiate(second.net, {{second.map.at("x"), ""}}, {"x"});
  EXPECT_TRUE(third.map.at("x").starts_with("g3/")) << third.map.at("x");
  Workspace workspace;
  workspace.tensor("x") = Tensor::of<double>(Shape{1}, {4});
  workspace.tensor("g") = Tensor::of<double>(Shape{1}, {1});
  RunContext run;
  run_net_once(third.net, workspace, run);
  EXPECT_EQ(workspace.fetch(first.map.at("x")).item<double>(), 48);   // 3 x^2
  EXPECT_EQ(workspace.fetch(second.map.at("x")).item<double>(), 24);  // 6 x
  EXPECT_EQ(workspace.fetch(third.map.at("x")).item<double>(), 6);
}

// No name of the first pass is written again.
TEST(SecondOrder, NothingIsOverwritten) {
  const Backward first = differentiate(Lines{"s = Mul(x, x)", "y = Mul(s, x)"}, {{"y", "g"}}, {"x"});
  const Backward second = differentiate(first.net, {{first.map.at("x"), ""}}, {"x"});
  std::set<std::string> before = {"g"};
  for (const OperatorDef& op : first.net.op()) before.insert(op.output().begin(), op.output().end());
  for (int i = second.result.first_gradient_op; i < second.net.op_size(); ++i)
    for (const std::string& name : second.net.op(i).output()) EXPECT_EQ(before.count(name), 0u) << name;
}

}  // namespace
}  // namespace stepnet::testing::gradients_second_order_test
