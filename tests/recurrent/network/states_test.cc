// States of RecurrentNetwork: initial values of every rank, runs of different lengths in turn, what is copied and what
// is allocated, what is carried over, and views that are overwritten.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "recurrent/step/counters.h"
#include "stepnet/gradients.h"
#include "tests/recurrent/elman.h"

namespace stepnet::testing::states_test {
namespace {

const CellState kH = {"h_prev", "h", "h0", "h_all", "h_last"};

TEST(States, InitialValuesOfEveryRank) {
  const Cell cell = {kElman, {kH}};
  for (const int64_t batch : {0, 1, 4})
    for (const Shape& initial : {Shape{3}, Shape{batch, 3}, Shape{1, batch, 3}}) {
      SCOPED_TRACE(initial.str());
      EXPECT_EQ(check_against_unrolled(cell, elman_feeds(3, batch, initial)), "");
      EXPECT_EQ(check_against_unrolled(cell, elman_feeds(0, batch, initial)), "");
    }
}

TEST(States, OfDifferentRanksAndWidths) {
  const Cell cell = {{"s = FC(h_prev, W, b) axis=2", "c = Sum(s, c_prev)", "h = FC(c, U, d) axis=2"},
                     {kH, {"c_prev", "c", "c0", "c_all", "c_last"}}};
  const Feeds feeds = {{"X", normal<double>({4, 2, 5})},     {"h0", normal<double>({2})},
                       {"c0", normal<double>({1, 2, 3}, 2)}, {"W", normal<double>({3, 2}, 3)},
                       {"U", normal<double>({2, 3}, 4)},     {"b", normal<double>({3}, 5)},
                       {"d", normal<double>({2}, 6)}};
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

TEST(States, BiasIsTheInitialStateToo) {
  Cell cell = {{"s = FC(h_prev, W, b) axis=2", "h = Tanh(s)"}, {{"h_prev", "h", "b", "h_all", "h_last"}}};
  const Feeds feeds = {
      {"X", normal<double>({4, 2, 3})}, {"W", normal<double>({3, 3}, 3)}, {"b", normal<double>({3}, 5)}};
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  cell.states[0].initial = "W";  // [B, D] for a batch of 3
  EXPECT_EQ(check_against_unrolled(cell, {{"X", normal<double>({4, 3, 3})}, feeds[1], feeds[2]}), "");
}

CellData elman_data(const Cell& cell, int64_t steps, int64_t batch, uint64_t seed) {
  const Feeds feeds = elman_feeds(steps, batch, {batch, 3}, seed);
  return {feeds, outside_gradients(cell, feeds)};
}

TEST(States, LengthsAndBatchesMayChangeFromRunToRun) {
  const Cell cell = {kElman, {kH}};
  std::vector<CellData> data;
  for (const auto& [steps, batch] : {std::pair{5, 2}, {2, 2}, {5, 2}, {0, 2}, {5, 3}, {1, 1}, {5, 0}, {5, 2}, {5, 2}})
    data.push_back(elman_data(cell, steps, batch, 10 * data.size()));
  const std::vector<CellResults> results = run_in_turn(expanded_net(cell, data[0].feeds), data);
  for (size_t i = 0; i < data.size(); ++i) {
    SCOPED_TRACE(fmt::format("run {}", i));
    EXPECT_EQ(compare_results(results[i], run_unrolled(cell, data[i].feeds, data[i].outside), 1e-10), "");
  }
}

TEST(States, ASecondRunOfTheSameShapesAllocatesNothing) {
  const Cell cell = {kElman, {kH}, {"p"}};
  for (const Shape& initial : {Shape{3}, Shape{2, 3}}) {
    const Feeds feeds = elman_feeds(6, 2, initial);
    const CellData data = {feeds, outside_gradients(cell, feeds)};
    const std::vector<CellResults> results = run_in_turn(expanded_net(cell, feeds), {data, data, data});
    EXPECT_GT(results[0].allocations, 0);
    EXPECT_EQ(results[1].allocations, 0) << initial.str();
    EXPECT_EQ(results[2].allocations, 0) << initial.str();
  }
}

// Bytes of one state over 5 timesteps, a batch of 2 and a width of 3.
constexpr int64_t kStateBytes = 5 * 2 * 3 * 8;

int64_t spread_bytes(const Lines& step, std::vector<CellState> states) {
  const Cell cell = {step, std::move(states)};
  const Feeds feeds = {
      {"X", normal<double>({5, 2, 3})}, {"h0", normal<double>({2, 3})}, {"c0", normal<double>({2, 3})}};
  const CellResults results = run_recurrent(cell, feeds, outside_gradients(cell, feeds));
  EXPECT_EQ(results.copied, 0);
  return results.spread;
}

TEST(States, AGradientIsWrittenOnceForEachDestinationButTheFirst) {
  const CellState c = {"c_prev", "c", "c0", "c_all", "c_last"};
  EXPECT_EQ(spread_bytes({"h = Mul(h_prev, x)"}, {kH}), 0);
  EXPECT_EQ(spread_bytes({"s = Sum(h_prev, x)", "h = Tanh(s)"}, {kH}), kStateBytes);
  // Both gradients are h's own, which nobody writes.
  EXPECT_EQ(spread_bytes({"h = Sum(h_prev, x)"}, {kH}), 2 * kStateBytes);
  EXPECT_EQ(spread_bytes({"h = Tanh(h_prev)", "c = Tanh(c_prev)"}, {kH, c}), 0);
}

TEST(States, CountsTheOneWriteOfInitialStates) {
  const Cell cell = {kElman, {kH}};
  const Feeds feeds = elman_feeds(6, 2, {2, 3});
  const int64_t before = recurrent_counters().initial;
  run_recurrent(cell, feeds, {});
  EXPECT_EQ(recurrent_counters().initial - before, 2 * 2 * 3 * 8);  // run_with_gradients runs twice
}

TEST(States, CountsWhatTheCellItselfCopiesIntoAState) {
  const Cell cell = {{"s = Sum(x, h_prev)", "a = Tanh(s)", "h = Alias(a)"}, {kH}};
  const Feeds feeds = {{"X", normal<double>({5, 2, 3})}, {"h0", normal<double>({2, 3})}};
  const Feeds outside = outside_gradients(cell, feeds);
  const CellResults results = run_recurrent(cell, feeds, outside);
  EXPECT_EQ(results.copied, kStateBytes);
  EXPECT_EQ(compare_results(results, run_unrolled(cell, feeds, outside), 1e-10), "");
}

// A random operator's own seed goes before the run's, in a step net too.
TEST(States, OfStepsThatDraw) {
  const Cell cell = {{"s = Sum(x, h_prev)", "d, mask = Dropout(s)", "h = Tanh(d)"}, {kH}};
  const Feeds feeds = {{"X", normal<double>({5, 2, 3})}, {"h0", normal<double>({2, 3})}};
  auto states = [&](bool own_seed, uint64_t seed) {
    NetDef net = recurrent_net(cell, feeds);
    NetDef& step = *net.mutable_op(0)->MutableExtension(recurrent)->mutable_step_net();
    if (own_seed) step.mutable_op(1)->mutable_device_option()->set_random_seed(7);
    expand_recurrent(net);
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
    RunContext run;
    run.seed = seed;
    run_net_once(net, workspace, run);
    return workspace.fetch("h_all").clone();
  };
  EXPECT_EQ(compare(states(true, 1), states(true, 2), 0), "");
  EXPECT_EQ(compare(states(false, 1), states(false, 1), 0), "");
  EXPECT_NE(compare(states(false, 1), states(false, 2), 0), "");
}

// The last state of one run is the first of the next, as a view of it, as when a text is read in pieces.
TEST(States, AreCarriedFromRunToRun) {
  const Cell cell = {kElman, {kH}};
  const Feeds feeds = elman_feeds(6, 2, {2, 3});
  const Tensor whole = run_recurrent(cell, feeds, {}).outputs.at("h_all");
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  Net net(expanded_net(cell, feeds), workspace);
  RunContext run;
  for (int64_t t = 0; t < 6; t += 2) {
    workspace.tensor("X") = feeds[0].second.rows(t, 2);
    net.run(run);
    EXPECT_EQ(compare(workspace.fetch("h_all"), whole.rows(t, 2), 1e-14), "");
    workspace.tensor("h0") = workspace.fetch("h_last");
  }
}

TEST(States, OverwrittenViewIsAnErrorWhereItsRowsAreRead) {
  const Cell cell = {kElman, {kH}};
  NetDef net = expanded_net(cell, elman_feeds(2, 2, {2, 3}));
  *net.add_op() = make_op("Relu", {"h_all"}, {"h_all"});
  *net.add_op() = make_op("SumElements", {"h_all"}, {"loss"});
  EXPECT_EQ(error_of([&] {
              add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"W"}, .stop = {}});
            }),
            "RecurrentNetwork: the gradient reads version 1 of \"h_all\", but operator 1 (Relu) has made it version 2\n"
            "  in  operator 0 of net \"outer\"\n"
            "  op  h_all, h_last, rnn/step_workspaces = RecurrentNetwork(X, h0, W, b, U, d)\n"
            "  fix let Relu write to another blob than \"h_all\"");
}

TEST(States, OverwrittenViewIsFineWhereOnlyShapesAreRead) {
  const Cell cell = {{"h = Sum(h_prev, x)"}, {{"h_prev", "h", "h0", "h_all", ""}}};
  const Feeds feeds = {{"X", normal<double>({5, 2, 3})}, {"h0", normal<double>({2, 3})}};
  NetDef net = expanded_net(cell, feeds);
  *net.add_op() = make_op("Relu", {"h_all"}, {"h_all"});
  const Feeds outside = outside_gradients(cell, feeds);
  const CellResults results = run_with_gradients(net, feeds, outside);
  Tensor masked = outside[0].second.clone();
  for (int64_t i = 0; i < masked.size(); ++i)
    if (results.outputs.at("h_all").data<double>()[i] == 0) masked.data<double>()[i] = 0;
  const CellResults expected = run_unrolled(cell, feeds, {{"h_all", masked}});
  EXPECT_EQ(compare_results({{}, results.gradients}, {{}, expected.gradients}, 1e-10), "");
}

// Segments run again from the rows of the states, whatever the derivative reads.
TEST(States, OverwrittenViewIsAnErrorWhereSegmentsRunAgain) {
  const Cell cell = {{"h = Sum(h_prev, x)"}, {{"h_prev", "h", "h0", "h_all", ""}}};
  NetDef net = expanded_net(cell, {{"X", normal<double>({5, 2, 3})}, {"h0", normal<double>({2, 3})}});
  *net.mutable_op(0)->add_arg() = make_arg("segment_steps", int64_t{2});
  *net.mutable_op(0)->add_arg() = make_arg("segment_room", int64_t{0});
  *net.add_op() = make_op("Relu", {"h_all"}, {"h_all"});
  const std::string text = error_of([&] {
    add_gradient_operators(net, {.targets = {{"h_all", ""}}, .wanted = {"X"}, .stop = {}});
  });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "RecurrentNetwork: the gradient reads version 1 of \"h_all\", but operator 1 (Relu) has made it version 2");
}

TEST(States, TwoNetsMayUseOneWorkspaceInTurn) {
  const Feeds feeds = {{"X", normal<double>({5, 2, 3})}, {"h0", normal<double>({2, 3})}};
  const Cell cells[] = {{{"h = Mul(h_prev, x)"}, {kH}}, {{"s = Sum(h_prev, x)", "h = Tanh(s)"}, {kH}}};
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  RunContext run;
  Net first(expanded_net(cells[0], feeds), workspace), second(expanded_net(cells[1], feeds), workspace);
  for (int i = 0; i < 2; ++i) {
    first.run(run);
    EXPECT_EQ(compare(workspace.fetch("h_all"), run_unrolled(cells[0], feeds, {}).outputs.at("h_all"), 1e-12), "");
    second.run(run);
    EXPECT_EQ(compare(workspace.fetch("h_all"), run_unrolled(cells[1], feeds, {}).outputs.at("h_all"), 1e-12), "");
  }
}

TEST(States, WhatTheStepNetReadsOutsideMayChangeItsShape) {
  const Cell cell = {{"s = Mul(h_prev, P) broadcast=1", "h = Sum(s, x)"}, {kH}};
  Feeds feeds = {{"X", normal<double>({5, 2, 3})}, {"h0", normal<double>({2, 3})}, {"P", normal<double>({2, 3})}};
  NetDef net = expanded_net(cell, feeds);
  OperatorDef& op = *net.mutable_op(0);
  op.mutable_input()->RemoveLast();  // P is read all the same
  for (Argument& arg : *op.mutable_arg())
    if (arg.name().starts_with("param")) arg.clear_ints(), arg.clear_strings();
  Workspace workspace;
  RunContext run;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  Net bound(net, workspace);
  for (const Shape& shape : {Shape{2, 3}, Shape{3}, Shape{1, 2, 3}}) {
    feeds[2].second = normal<double>(shape);
    workspace.tensor("P") = feeds[2].second;
    bound.run(run);
    EXPECT_EQ(compare(workspace.fetch("h_all"), run_unrolled(cell, feeds, {}).outputs.at("h_all"), 1e-12), "");
  }
}

}  // namespace
}  // namespace stepnet::testing::states_test
