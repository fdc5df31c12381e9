// Gradients that several consumers add to: the public format's rows for pass-through operators, and their numbers.
#include <gtest/gtest.h>

#include "stepnet/net.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gradients_sums_test {
namespace {

using Map = std::map<std::string, std::string>;

TEST(GradientRows, NormalAccumulation) {
  const Lines lines =
      differentiate(Lines{"x2 = Relu(x1)", "x3 = Softmax(x2)", "x4 = UseInput(x2, x3)"}, {{"x4", ""}}).lines;
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[3], "x2_grad = Sum(x2_grad, _x2_grad_autosplit_0)");
}

TEST(GradientRows, AccumulationWithNoGradientBranch) {
  const Lines lines =
      differentiate(Lines{"x2 = Relu(x1)", "Observe(x2)", "x3 = Softmax(x2)", "x4 = UseInput(x2, x3)"}, {{"x4", ""}})
          .lines;
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[3], "x2_grad = Sum(x2_grad, _x2_grad_autosplit_0)");
}

// Of operands that have one shape, as all had in 2018.
TEST(GradientRows, AddOpInMiddle) {
  const Backward b =
      differentiate(Lines{"x2 = Relu(x1)", "x3 = Softmax(x2)", "x4 = Add(x2, x3) equal_shapes=1"}, {{"x4", "x4_grad"}});
  ASSERT_EQ(b.lines.size(), 3u);
  EXPECT_EQ(b.lines[1], "x2_grad = Sum(x2_grad, x4_grad)");
  EXPECT_EQ(b.map.at("x1"), "x1_grad");
}

const Lines kAddConstant = {"x2 = FC(x1, x1_w, x1_b)",
                            "x2 = Relu(x2)",
                            "",
                            "",
                            "x5 = FC(x4, x4_w, x4_b)",
                            "softmax, loss = SoftmaxWithLoss(x5, labels)"};

TEST(GradientRows, AddAndDynamicConstant) {
  Lines net = kAddConstant;
  net[2] = "x3 = ConstantFill(x2)";
  net[3] = "x4 = Add(x2, x3)";
  const Backward b = differentiate(net, {{"loss", ""}});
  for (const std::string& line : b.lines) EXPECT_EQ(line.find("Sum("), std::string::npos) << line;
  EXPECT_EQ(b.map.at("x1"), "x1_grad");
  EXPECT_EQ(b.map.at("x4"), "x4_grad");
}

TEST(GradientRows, AddAndStaticConstant) {
  Lines net = kAddConstant;
  net[2] = "x3 = ConstantFill()";
  net[3] = "x4 = Add(x2, x3) broadcast=1";
  EXPECT_EQ(differentiate(net, {{"loss", ""}}).map.at("x1"), "x1_grad");
}

TEST(GradientRows, SubOpInMiddle) {
  const Backward b =
      differentiate(Lines{"x2 = Relu(x1)", "x3 = Softmax(x2)", "x4 = Sub(x2, x3) equal_shapes=1"}, {{"x4", "x4_grad"}});
  EXPECT_EQ(b.lines, (Lines{"x3_grad = Negative(x4_grad)", "x2_grad = SoftmaxGradient(x3, x3_grad)",
                            "x2_grad = Sum(x2_grad, x4_grad)", "x1_grad = ReluGradient(x2, x2_grad)"}));
  EXPECT_EQ(b.map.at("x1"), "x1_grad");
}

TEST(GradientRows, AddOpAtLeaf) {
  const Backward b = differentiate(
      Lines{"x4 = Add(x1, x2) equal_shapes=1", "x5 = Add(x2, x3) equal_shapes=1", "x6 = UseInput(x4, x5)"},
      {{"x6", "x6_grad"}});
  EXPECT_EQ(b.lines.back(), "x2_grad = Sum(x5_grad, x4_grad)");
  EXPECT_EQ(b.map.at("x1"), "x4_grad");
  EXPECT_EQ(b.map.at("x2"), "x2_grad");
  EXPECT_EQ(b.map.at("x3"), "x5_grad");
}

TEST(GradientRows, SubOpAtLeaf) {
  const Backward b = differentiate(
      Lines{"x4 = Sub(x1, x2) equal_shapes=1", "x5 = Sub(x2, x3) equal_shapes=1", "x6 = UseInput(x4, x5)"},
      {{"x6", "x6_grad"}});
  EXPECT_EQ(b.lines.back(), "x2_grad = Sum(x2_grad, x5_grad)");
  EXPECT_EQ(b.map.at("x1"), "x4_grad");
  EXPECT_EQ(b.map.at("x2"), "x2_grad");
  EXPECT_EQ(b.map.at("x3"), "x3_grad");
}

TEST(GradientRows, MultiLayerAddOps) {
  const Backward b = differentiate(
      Lines{"x4 = Add(x1, x2) equal_shapes=1", "x5 = Add(x2, x3) equal_shapes=1", "x6 = Add(x4, x5) equal_shapes=1"},
      {{"x6", "x6_grad"}});
  EXPECT_EQ(b.lines, (Lines{"x2_grad = Sum(x6_grad, x6_grad)"}));
  EXPECT_EQ(b.map.at("x1"), "x6_grad");
  EXPECT_EQ(b.map.at("x2"), "x2_grad");
  EXPECT_EQ(b.map.at("x3"), "x6_grad");
}

TEST(GradientRows, MultiLayerSubOps) {
  const Backward b = differentiate(
      Lines{"x4 = Sub(x1, x2) equal_shapes=1", "x5 = Sub(x2, x3) equal_shapes=1", "x6 = Sub(x4, x5) equal_shapes=1"},
      {{"x6", "x6_grad"}});
  EXPECT_EQ(b.lines.back(), "x2_grad = Sum(x2_grad, x5_grad)");
  EXPECT_EQ(b.map.at("x1"), "x6_grad");
  EXPECT_EQ(b.map.at("x2"), "x2_grad");
  EXPECT_EQ(b.map.at("x3"), "x3_grad");
}

// Runs the net on scalars and gives the gradient of `blob`.
float gradient_run(const Lines& lines, const Targets& targets, const std::map<std::string, float>& feeds,
                   const std::string& blob) {
  const Backward b = differentiate(lines, targets);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = Tensor::of<float>(Shape{1}, {value});
  RunContext run;
  run_net_once(b.net, workspace, run);
  return workspace.fetch(b.map.at(blob)).item<float>();
}

// Of others the shape is known when they run.
TEST(GradientRows, OperandsThatMayRepeat) {
  const Backward b =
      differentiate(Lines{"x4 = Add(x1, x2)", "x5 = Sub(x2, x3)", "x6 = UseInput(x4, x5)"}, {{"x6", "x6_grad"}});
  EXPECT_EQ(b.map.at("x1"), "x1_grad");
  EXPECT_EQ(b.map.at("x2"), "x2_grad");
  EXPECT_EQ(b.map.at("x3"), "x3_grad");
  const Lines behind(b.lines.end() - 6, b.lines.end());
  EXPECT_EQ(behind, (Lines{"_x2_grad_autosplit_0 = MatchShape(x5_grad, x2)", "_x5_grad_tmp_0 = Negative(x5_grad)",
                           "x3_grad = MatchShape(_x5_grad_tmp_0, x3)", "x1_grad = MatchShape(x4_grad, x1)",
                           "_x2_grad_autosplit_1 = MatchShape(x4_grad, x2)",
                           "x2_grad = Sum(_x2_grad_autosplit_0, _x2_grad_autosplit_1)"}));
  EXPECT_EQ(differentiate(Lines{"y = Mul(x, x)"}, {{"y", "given"}}).lines.size(), 3U);
  EXPECT_EQ(differentiate(Lines{"x = Add(x, w)"}, {{"x", "given"}}, {"x"}).lines.size(), 0U);
}

// What an operand was is overwritten by an operator that may give its blob another shape: they have one, or the net is
// refused when it runs.
TEST(GradientRows, OperandsWhoseShapeIsLost) {
  const Backward b = differentiate(Lines{"a = Negative(x)", "s = Add(a, w)", "a = SumElements(w)", "y = Sum(s, s)"},
                                   {{"y", "given"}}, {"x"});
  EXPECT_EQ(b.lines, (Lines{"s_grad = Sum(given, given)", "x_grad = Negative(s_grad)"}));
  EXPECT_EQ(line_of(b.net.op(1)), "s = Add(a, w)");
  EXPECT_TRUE(find_arg(b.net.op(1), "equal_shapes"));
}

TEST(GradientRows, TwoGrads) {
  EXPECT_EQ(gradient_run({"mul_1 = Mul(input, two)", "mul_2 = Mul(mul_1, three)"}, {{"mul_2", ""}, {"mul_1", ""}},
                         {{"input", 1}, {"two", 2}, {"three", 3}}, "input"),
            8.0f);
}

TEST(GradientRows, AccumulationRuns) {
  EXPECT_EQ(gradient_run({"mul_1 = Mul(input, two)", "mul_2 = Mul(input, three)", "sub = Sub(mul_1, one)"},
                         {{"mul_2", ""}, {"sub", ""}}, {{"input", 1}, {"one", 1}, {"two", 2}, {"three", 3}}, "input"),
            5.0f);
}

// A table that is read by rows and as a whole, as tied embeddings are, gets one dense gradient.
TEST(GradientSums, SparseBesideDense) {
  const Backward b =
      differentiate(Lines{"rows = Gather(table, at)", "y = FC(rows, table, bias)"}, {{"y", "y_grad"}}, {"table"});
  EXPECT_EQ(b.lines, (Lines{"table_grad, -, rows_grad = FCGradient(rows, table, y_grad)",
                            "_table_grad_autosplit_0 = SparseToDense(at, rows_grad, table)",
                            "table_grad = Sum(table_grad, _table_grad_autosplit_0)"}));
  EXPECT_EQ(b.map.at("table"), "table_grad");
}

TEST(GradientSums, SparseBesideDenseHasTheRightNumbers) {
  const Backward b =
      differentiate(Lines{"rows = Gather(table, at)", "y = FC(rows, table, bias)"}, {{"y", ""}}, {"table"});
  Workspace workspace;
  workspace.tensor("table") = Tensor::of<float>(Shape{2, 1}, {3, 5});
  workspace.tensor("bias") = Tensor::zeros(DType::float32, Shape{2});
  workspace.tensor("at") = Tensor::of<int32_t>(Shape{3}, {1, 0, 1});
  RunContext run;
  run_net_once(b.net, workspace, run);
  // y[n, j] = t[at[n]] t[j]; the sum of y is (2 t1 + t0)(t0 + t1) = 13 * 8.
  EXPECT_EQ(compare(workspace.fetch(b.map.at("table")), Tensor::of<float>(Shape{2, 1}, {13 + 8, 13 + 2 * 8}), 0), "");
}

// The given gradient is the user's: adding up must not write into it when the net lists it as an input.
TEST(GradientSums, AGivenGradientIsNotOverwritten) {
  NetDef net = net_of_lines({"y = Direct(x)", "x = Direct(x)"});
  for (const char* name : {"x", "x_grad", "y_grad"}) net.add_external_input(name);
  const Backward b = differentiate(net, {{"y", "y_grad"}, {"x", "x_grad"}});
  EXPECT_EQ(b.lines,
            (Lines{"_x_grad_autosplit_0 = DirectGradient(x_grad)", "_x_grad_autosplit_1 = DirectGradient(y_grad)",
                   "_x_grad_autosplit_2 = Sum(_x_grad_autosplit_0, _x_grad_autosplit_1)"}));
}

}  // namespace
}  // namespace stepnet::testing::gradients_sums_test
