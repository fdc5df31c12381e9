// The backward passes that the public format's users know, operator by operator and name by name.
//
// Where Stepnet does better on purpose, the test pins what it does instead of the public refusal:
// - StopGradientOrphan, ZeroGradient, VersionMismatch: refused there, exact here. A StopGradient whose result nobody
//   uses is harmless, a missing gradient of an output counts as zero, and gradients are named per version.
// - StopGradient and its relatives: there every operator behind a target gets its gradient operator; here only those
//   that some wanted blob depends on, so the test asks for the blob.
#include <gtest/gtest.h>

#include "stepnet/net.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gradients_rows_test {
namespace {

using Map = std::map<std::string, std::string>;

NetDef on_device(NetDef net, int gpu) {
  for (OperatorDef& op : *net.mutable_op()) {
    op.mutable_device_option()->set_device_type(CUDA);
    op.mutable_device_option()->set_device_id(gpu);
  }
  return net;
}

void expect_all_on_gpu(const Backward& b, int gpu) {
  for (int i = b.result.first_gradient_op; i < b.net.op_size(); ++i) {
    EXPECT_EQ(b.net.op(i).device_option().device_type(), CUDA) << line_of(b.net.op(i));
    EXPECT_EQ(b.net.op(i).device_option().device_id(), gpu) << line_of(b.net.op(i));
    EXPECT_TRUE(b.net.op(i).is_gradient_op()) << line_of(b.net.op(i));
  }
}

const Lines kChain = {"hidden = Direct(in)", "out = Direct(hidden)"};

TEST(GradientRows, Direct) {
  const Backward b = differentiate(on_device(net_of_lines(kChain), 1), {{"out", "out_grad"}});
  EXPECT_EQ(b.lines, (Lines{"hidden_grad = DirectGradient(out_grad)", "in_grad = DirectGradient(hidden_grad)"}));
  expect_all_on_gpu(b, 1);
}

TEST(GradientRows, DirectImplicitGradientSource) {
  const Backward b = differentiate(kChain, {{"out", ""}});
  EXPECT_EQ(b.lines, (Lines{"out_autogen_grad = ConstantFill(out)", "hidden_grad = DirectGradient(out_autogen_grad)",
                            "in_grad = DirectGradient(hidden_grad)"}));
  const OperatorDef& fill = b.net.op(b.result.first_gradient_op);
  ASSERT_EQ(fill.arg_size(), 1);
  EXPECT_EQ(fill.arg(0).name(), "value");
  EXPECT_EQ(fill.arg(0).f(), 1.0f);
}

TEST(GradientRows, DoesNotGenerateUnnecessaryGradients) {
  EXPECT_EQ(differentiate(kChain, {{"hidden", "hidden_grad"}}).lines, (Lines{"in_grad = DirectGradient(hidden_grad)"}));
}

TEST(GradientRows, DirectButNoOutputGradientGiven) { EXPECT_EQ(differentiate(kChain, {}).lines, Lines{}); }

TEST(GradientRows, DirectInPlace) {
  EXPECT_EQ(differentiate(Lines{"in = Direct(in)", "out = Direct(in)"}, {{"out", "out_grad"}}).lines,
            (Lines{"in_grad = DirectGradient(out_grad)", "in_grad = DirectGradient(in_grad)"}));
}

TEST(GradientRows, VersionMismatch) {
  const Backward b = differentiate(Lines{"x = Direct(x)", "x = Direct(y)", "y = Direct(x)"}, {{"y", "y_grad"}}, {"y"});
  EXPECT_EQ(b.lines, (Lines{"x_grad = DirectGradient(y_grad)", "y_grad = DirectGradient(x_grad)"}));
  EXPECT_EQ(b.map, (Map{{"y", "y_grad"}}));
}

TEST(GradientRows, UseOutput) {
  EXPECT_EQ(differentiate(Lines{"hidden = UseOutput(in)", "out = UseOutput(hidden)", "sink = Direct(out)"},
                          {{"sink", "sink_grad"}})
                .lines,
            (Lines{"out_grad = DirectGradient(sink_grad)", "hidden_grad = UseOutputGradient(out, out_grad)",
                   "in_grad = UseOutputGradient(hidden, hidden_grad)"}));
}

TEST(GradientRows, UseOutputInPlace) {
  EXPECT_EQ(
      differentiate(Lines{"in = UseOutput(in)", "out = UseOutput(in)", "sink = Direct(out)"}, {{"sink", "sink_grad"}})
          .lines,
      (Lines{"out_grad = DirectGradient(sink_grad)", "in_grad = UseOutputGradient(out, out_grad)",
             "in_grad = UseOutputGradient(in, in_grad)"}));
}

TEST(GradientRows, UseOutputButOutputHasBeenChanged) {
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"hidden = UseOutput(in)", "hidden = Direct(hidden)", "out = UseOutput(hidden)",
                                  "sink = Direct(out)"},
                            {{"sink", "sink_grad"}});
            }),
            "UseOutput: the gradient reads version 1 of \"hidden\", but operator 1 (Direct) has made it version 2\n"
            "  in  operator 0 of net \"lines\"\n"
            "  op  hidden = UseOutput(in)\n"
            "  fix let Direct write to another blob than \"hidden\"");
}

TEST(GradientRows, UseInput) {
  EXPECT_EQ(differentiate(Lines{"hidden = Direct(in)", "out = UseInput(hidden)", "sink = Direct(out)"},
                          {{"sink", "sink_grad"}})
                .lines,
            (Lines{"out_grad = DirectGradient(sink_grad)", "hidden_grad = UseInputGradient(hidden, out_grad)",
                   "in_grad = DirectGradient(hidden_grad)"}));
}

TEST(GradientRows, UseInputButInputHasBeenChanged) {
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"out = UseInput(in)", "in = Direct(in)"}, {{"out", "out_grad"}});
            }),
            "UseInput: the gradient reads version 0 of \"in\", but operator 1 (Direct) has made it version 1\n"
            "  in  operator 0 of net \"lines\"\n"
            "  op  out = UseInput(in)\n"
            "  fix let Direct write to another blob than \"in\"");
}

TEST(GradientRows, MultiUseInput) {
  const Lines net = {"hidden1 = Direct(in)", "hidden2 = Direct(in)", "out = Direct(hidden1, hidden2)"};
  const Backward b = differentiate(on_device(net_of_lines(net), 1), {{"out", "out_grad"}});
  EXPECT_EQ(
      b.lines,
      (Lines{"hidden1_grad, hidden2_grad = DirectGradient(out_grad)", "in_grad = DirectGradient(hidden2_grad)",
             "_in_grad_autosplit_0 = DirectGradient(hidden1_grad)", "in_grad = Sum(in_grad, _in_grad_autosplit_0)"}));
  expect_all_on_gpu(b, 1);
}

// There hidden2_grad is computed and dropped; here it is not wanted, so it is not computed.
TEST(GradientRows, MultiUseInputButWithNoGradient) {
  const Lines net = {"hidden1 = Direct(in)", "hidden2 = Nogradient(in)", "out = Direct(hidden1, hidden2)"};
  EXPECT_EQ(differentiate(net, {{"out", "out_grad"}}).lines,
            (Lines{"hidden1_grad, - = DirectGradient(out_grad)", "in_grad = DirectGradient(hidden1_grad)"}));
  EXPECT_EQ(differentiate(net, {{"out", "out_grad"}}, {"in", "hidden2"}).lines,
            (Lines{"hidden1_grad, hidden2_grad = DirectGradient(out_grad)", "in_grad = DirectGradient(hidden1_grad)"}));
}

TEST(GradientRows, MultiUseInputAndMultipleVersions) {
  EXPECT_EQ(differentiate(Lines{"in = Direct(in)", "hidden1 = Direct(in)", "hidden2 = Direct(in)",
                                "out = Direct(hidden1, hidden2)"},
                          {{"out", "out_grad"}})
                .lines,
            (Lines{"hidden1_grad, hidden2_grad = DirectGradient(out_grad)", "in_grad = DirectGradient(hidden2_grad)",
                   "_in_grad_autosplit_0 = DirectGradient(hidden1_grad)",
                   "in_grad = Sum(in_grad, _in_grad_autosplit_0)", "in_grad = DirectGradient(in_grad)"}));
}

TEST(GradientRows, MultiUseInputAndMultipleVersionsBig) {
  EXPECT_EQ(differentiate(Lines{"in = Direct(in)", "hidden1 = Direct(in)", "hidden2 = Direct(in)",
                                "in = Direct(hidden1, hidden2)", "hidden3 = Direct(in)", "hidden4 = Direct(in)",
                                "hidden5 = Direct(in)", "out = Direct(hidden3, hidden4, hidden5)"},
                          {{"out", "out_grad"}})
                .lines,
            (Lines{"hidden3_grad, hidden4_grad, hidden5_grad = DirectGradient(out_grad)",
                   "in_grad = DirectGradient(hidden5_grad)", "_in_grad_autosplit_0 = DirectGradient(hidden4_grad)",
                   "_in_grad_autosplit_1 = DirectGradient(hidden3_grad)",
                   "in_grad = Sum(in_grad, _in_grad_autosplit_0, _in_grad_autosplit_1)",
                   "hidden1_grad, hidden2_grad = DirectGradient(in_grad)", "in_grad = DirectGradient(hidden2_grad)",
                   "_in_grad_autosplit_0 = DirectGradient(hidden1_grad)",
                   "in_grad = Sum(in_grad, _in_grad_autosplit_0)", "in_grad = DirectGradient(in_grad)"}));
}

TEST(GradientRows, GradientMappingUsingSumOp) {
  const Backward b =
      differentiate(Lines{"fc = FC(in, w, b)", "agg = Sum(fc)", "loss = AveragedLoss(agg)"}, {{"loss", "loss_grad"}});
  EXPECT_EQ(b.lines, (Lines{"agg_grad = AveragedLossGradient(agg, loss_grad)",
                            "w_grad, b_grad, in_grad = FCGradient(in, w, agg_grad)"}));
}

// Print stands for every operator that looks and has no output.
TEST(GradientRows, GradientCalculationWithPrint) {
  const Backward b =
      differentiate(Lines{"fc = FC(in, w, b)", "Observe(fc)", "loss = AveragedLoss(fc)"}, {{"loss", "loss_grad"}});
  EXPECT_EQ(b.lines, (Lines{"fc_grad = AveragedLossGradient(fc, loss_grad)",
                            "w_grad, b_grad, in_grad = FCGradient(in, w, fc_grad)"}));
  for (int i = b.result.first_gradient_op; i < b.net.op_size(); ++i) EXPECT_TRUE(b.net.op(i).is_gradient_op());
}

TEST(GradientRows, StopGradient) {
  const Lines net = {"hidden = Direct(in)", "hidden2 = StopGradient(hidden)", "out = Direct(hidden2)"};
  EXPECT_EQ(differentiate(net, {{"out", "out_grad"}}, {"hidden2"}).lines,
            (Lines{"hidden2_grad = DirectGradient(out_grad)"}));
  const Backward nothing_reached = differentiate(net, {{"out", "out_grad"}});
  EXPECT_EQ(nothing_reached.lines, Lines{});
  EXPECT_EQ(nothing_reached.map, (Map{{"out", "out_grad"}}));
}

TEST(GradientRows, StopGradientOrphan) {
  EXPECT_EQ(differentiate(Lines{"hidden = Direct(in)", "auto_blobx = StopGradient(hidden)", "out = Direct(hidden)"},
                          {{"out", "out_grad"}})
                .lines,
            (Lines{"hidden_grad = DirectGradient(out_grad)", "in_grad = DirectGradient(hidden_grad)"}));
}

TEST(GradientRows, StopGradientInplace) {
  const Lines net = {"hidden = Direct(in)", "hidden = StopGradient(hidden)", "out = Direct(hidden)"};
  EXPECT_EQ(differentiate(net, {{"out", "out_grad"}}).map, (Map{{"out", "out_grad"}}));
  const Backward b = differentiate(net, {{"out", "out_grad"}}, {"hidden"});
  EXPECT_EQ(b.lines, (Lines{"hidden_grad = DirectGradient(out_grad)"}));
  EXPECT_EQ(b.map, (Map{{"out", "out_grad"}, {"hidden", "hidden_grad"}}));
}

TEST(GradientRows, StopGradientWithMultiUseOperators) {
  const Backward b = differentiate(Lines{"hidden = Direct(in)", "hidden2 = Direct(hidden)",
                                         "hidden3 = StopGradient(hidden)", "out = Direct(hidden2, hidden3)"},
                                   {{"out", "out_grad"}}, {"in", "hidden3"});
  EXPECT_EQ(b.lines, (Lines{"hidden2_grad, hidden3_grad = DirectGradient(out_grad)",
                            "hidden_grad = DirectGradient(hidden2_grad)", "in_grad = DirectGradient(hidden_grad)"}));
  EXPECT_EQ(b.map, (Map{{"out", "out_grad"},
                        {"hidden2", "hidden2_grad"},
                        {"hidden3", "hidden3_grad"},
                        {"hidden", "hidden_grad"},
                        {"in", "in_grad"}}));
}

TEST(GradientRows, ZeroGradient) {
  const Lines unit = {"hidden_t, cell_t = LSTMUnit(h, c, g, s, t)"};
  const Lines with_zeros = {unit[0], "ZeroGradient(cell_t)"};
  const Lines without = differentiate(unit, {{"hidden_t", ""}}).lines;
  ASSERT_EQ(without.size(), 2u);
  EXPECT_EQ(without[1],
            "h_grad, c_grad, g_grad = LSTMUnitGradient(h, c, g, s, t, hidden_t, cell_t, "
            "hidden_t_autogen_grad)");
  const Lines zeroed = differentiate(with_zeros, {{"hidden_t", ""}}).lines;
  ASSERT_EQ(zeroed.size(), 3u);
  EXPECT_EQ(zeroed[1], "cell_t_grad = ConstantFill(cell_t)");
  EXPECT_EQ(zeroed[2],
            "h_grad, c_grad, g_grad = LSTMUnitGradient(h, c, g, s, t, hidden_t, cell_t, "
            "hidden_t_autogen_grad, cell_t_grad)");
}

TEST(GradientRows, SparseAccumulationWithValues) {
  const Lines lines =
      differentiate(Lines{"x4 = Gather(x2, x1)", "x5 = Gather(x2, x3)", "x6 = UseInput(x4, x5)"}, {{"x6", ""}}).lines;
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[lines.size() - 2], "x2_grad_indices_concat, x2_grad_indices_concat_split = Concat(x3, x1)");
  EXPECT_EQ(lines[lines.size() - 1], "x2_grad_values_concat, x2_grad_values_concat_split = Concat(x5_grad, x4_grad)");
}

TEST(GradientRows, SparseGradientToDense) {
  const Lines lines = differentiate(Lines{"x2 = FC(x0, w, b)", "x2 = EnsureDense(x2)", "x4 = Gather(x2, x1)",
                                          "x5 = Gather(x2, x3)", "x6 = UseInput(x4, x5)"},
                                    {{"x6", ""}}, {"x0", "w", "b"})
                          .lines;
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[lines.size() - 2], "x2_grad = SparseToDense(x2_grad_indices_concat, x2_grad_values_concat, x2)");
  EXPECT_EQ(lines[lines.size() - 1], "w_grad, b_grad, x0_grad = FCGradient(x0, w, x2_grad)");
}

TEST(GradientRows, SparseAccumulationWithIndicesAndValues) {
  const Lines lines = differentiate(Lines{"x8 = SparseFunHash(x1, x2, x3, x4)", "x9 = SparseFunHash(x5, x6, x7, x4)",
                                          "x10 = UseInput(x8, x9)"},
                                    {{"x10", ""}})
                          .lines;
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[2],
            "_x4_grad_indices_autosplit_0, _x4_grad_values_autosplit_0 = "
            "SparseFunHashGradient(x9_grad, x5, x6, x7)");
  EXPECT_EQ(lines[4],
            "x4_grad_indices_concat, x4_grad_indices_concat_split = "
            "Concat(_x4_grad_indices_autosplit_0, _x4_grad_indices_autosplit_1)");
  EXPECT_EQ(lines[5],
            "x4_grad_values_concat, x4_grad_values_concat_split = "
            "Concat(_x4_grad_values_autosplit_0, _x4_grad_values_autosplit_1)");
}

// The schema is checked before anything is differentiated.
TEST(GradientRows, IncorrectOperator) {
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"m1 = Mul(a)", "d = Sub(m1, one)"}, {{"d", ""}});
            }),
            "Mul: the operator does not fit its schema: 1 input for 2 that it takes\n"
            "  in  operator 0 of net \"lines\"\n"
            "  op  m1 = Mul(a)\n"
            "  fix its inputs are A, B");
}

}  // namespace
}  // namespace stepnet::testing::gradients_rows_test
