// Outputs that are no states: values of the step net, timestep by timestep.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "tests/recurrent/elman.h"

namespace stepnet::testing::outputs_test {
namespace {

Cell cell_with(const std::vector<CellOutput>& outputs) {
  return {.step = kElmanWithOutput, .states = {{"h_prev", "h", "h0", "", "h_last"}}, .outputs = outputs};
}

TEST(Outputs, AreTheNetUnrolled) {
  // y is for outside alone; s is read in the step too; h is a state; x and h_prev are given to the step.
  for (const std::vector<CellOutput>& outputs :
       {std::vector<CellOutput>{{"y", "Y"}},
        {{"s", "S"}},
        {{"h", "H"}},
        {{"x", "X2"}},
        {{"h_prev", "before"}},
        {{"y", "Y"}, {"s", "S"}, {"h", "H"}, {"x", "X2"}, {"h_prev", "before"}, {"y", "again"}, {"h", "H2"}}}) {
    const Cell cell = cell_with(outputs);
    SCOPED_TRACE(outputs[0].inner);
    for (const auto& [steps, batch] : {std::pair{5, 2}, {1, 1}, {0, 2}, {3, 0}})
      EXPECT_EQ(check_against_unrolled(cell, elman_feeds_with_output(steps, batch)), "") << steps << " " << batch;
    EXPECT_EQ(check_differences(cell, elman_feeds_with_output(3, 2)), "");
  }
}

TEST(Outputs, WithoutTimestepsHaveTheirShape) {
  const CellResults results = run_recurrent(cell_with({{"y", "Y"}}), elman_feeds_with_output(0, 2), {});
  EXPECT_EQ(results.outputs.at("Y").str(), "double[0, 2, 4]");
}

// Gradients arrive for some outputs alone; the others count as zero.
TEST(Outputs, WithGradientsFromSome) {
  Cell cell = cell_with({{"y", "Y"}, {"s", "S"}});
  for (const char* some : {"Y", "S", "h_last"}) {
    cell.differentiated = {some};
    EXPECT_EQ(check_against_unrolled(cell, elman_feeds_with_output(4, 2)), "");
  }
}

TEST(Outputs, StandInAnyOrderWithViews) {
  const Cell cell = cell_with({{"y", "Y"}, {"s", "S"}});
  const Feeds feeds = elman_feeds_with_output(4, 2);
  NetDef net = recurrent_net(cell, feeds);
  net.mutable_op(0)->mutable_output()->SwapElements(0, 1);
  expand_recurrent(net);
  EXPECT_EQ(net.op(0).output(0), "h_last");
  const Feeds outside = outside_gradients(cell, feeds);
  EXPECT_EQ(compare_results(run_with_gradients(net, feeds, outside), run_unrolled(cell, feeds, outside), 1e-10), "");
}

// No bytes are copied to give an output, and none are allocated from the second run on.
TEST(Outputs, AreWrittenInPlace) {
  const Cell cell = cell_with({{"y", "Y"}, {"s", "S"}});
  const Feeds feeds = elman_feeds_with_output(6, 2);
  const CellData data = {feeds, outside_gradients(cell, feeds)};
  const std::vector<CellResults> results = run_in_turn(expanded_net(cell, feeds), {data, data, data});
  for (const CellResults& r : results) {
    EXPECT_EQ(r.copied, 0);
    EXPECT_EQ(r.spread, 0);
  }
  EXPECT_EQ(results[2].allocations, 0);
}

TEST(Outputs, OfOtherShapesThanRows) {
  const std::pair<Lines, std::string> cases[] = {
      {{"h = Tanh(h_prev)", "y = SumElements(x)"},
       "\"y\", a row of the output \"Y\", must be [1, B, ...] with a batch of 2, but the step net makes it double[]"},
      {{"h = Tanh(h_prev)", "y = FC(x, W, b)"},
       "\"y\", a row of the output \"Y\", must be [1, B, ...] with a batch of 2, but the step net makes it double[1, "
       "5]"},
  };
  for (const auto& [step, message] : cases) {
    const Cell cell = {.step = step, .states = {{"h_prev", "h", "h0", "h_all", ""}}, .outputs = {{"y", "Y"}}};
    const Feeds feeds = {{"X", normal<double>({4, 2, 3})},
                         {"h0", normal<double>({2, 3})},
                         {"W", normal<double>({5, 6})},
                         {"b", normal<double>({5})}};
    const std::string text = error_of([&cell = cell, &feeds] {
      run_in_turn(expanded_net(cell, feeds), {{feeds, {}}});
    });
    EXPECT_EQ(text.substr(0, text.find('\n')), "RecurrentNetwork: " + message);
  }
}

// The gradient that arrives belongs to others; s has one from the step too, which is added.
TEST(Outputs, GradientsFromOutsideAreNotWritten) {
  const Cell cell = cell_with({{"s", "S"}, {"y", "Y"}});
  const Feeds feeds = elman_feeds_with_output(4, 2);
  NetDef net = expanded_net(cell, feeds);
  for (const char* name : {"gS", "gY"}) net.add_external_input(name);
  add_gradient_operators(net, {.targets = {{"S", "gS"}, {"Y", "gY"}}, .wanted = {"X", "W"}, .stop = {}});
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
  const Feeds given = {{"gS", normal<double>({4, 2, 3}, 7)}, {"gY", normal<double>({4, 2, 4}, 8)}};
  for (const auto& [name, value] : given) workspace.tensor(name) = value.clone();
  RunContext run;
  run_net_once(net, workspace, run);
  for (const auto& [name, value] : given) EXPECT_EQ(compare(workspace.fetch(name), value, 0), "") << name;
}

// What a later operator overwrites is read by no gradient.
TEST(Outputs, OverwrittenIsAnErrorWhereItIsRead) {
  const Cell cell = {.step = {"y = Tanh(x)", "h = Mul(h_prev, y)"},
                     .states = {{"h_prev", "h", "h0", "h_all", ""}},
                     .outputs = {{"y", "Y"}}};
  const Feeds feeds = {{"X", normal<double>({4, 2, 3})}, {"h0", normal<double>({2, 3})}};
  NetDef net = expanded_net(cell, feeds);
  *net.add_op() = make_op("Relu", {"Y"}, {"Y"});
  *net.add_op() = make_op("SumElements", {"Y"}, {"loss"});
  const std::string text = error_of([&] {
    add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"X"}, .stop = {}});
  });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "RecurrentNetwork: the gradient reads version 1 of \"Y\", but operator 1 (Relu) has made it version 2");
}

// The gradient reads neither, but writes both once more.
TEST(Outputs, OverwrittenIsAnErrorWhereItIsMadeAgain) {
  for (const char* shown : {"Y", "h_all"}) {
    Cell cell = {.step = {"y = Tanh(x)", "h = Sigmoid(x)"},
                 .states = {{"h_prev", "h", "h0", "h_all", ""}},
                 .outputs = {{"y", "Y"}}};
    cell.recompute = {"y", "h"};
    NetDef net = expanded_net(cell, {{"X", normal<double>({4, 2, 3})}, {"h0", normal<double>({2, 3})}});
    *net.add_op() = make_op("Negative", {shown}, {shown});
    *net.add_op() = make_op("SumElements", {shown}, {"loss"});
    const std::string text = error_of([&] {
      add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"X"}, .stop = {}});
    });
    EXPECT_NE(text.find(fmt::format("the gradient reads version 1 of \"{}\"", shown)), text.npos) << text;
  }
}

}  // namespace
}  // namespace stepnet::testing::outputs_test
