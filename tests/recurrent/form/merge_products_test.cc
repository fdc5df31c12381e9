// FCs of one input in a step net: which become one product, and that it gives the same.
#include <gtest/gtest.h>

#include "stepnet/gradients.h"
#include "tests/recurrent/programs.h"

namespace stepnet::testing::merge_products_test {
namespace {

constexpr int64_t kSteps = 9, kBatch = 50, kIn = 3, kWidth = 8;

const CellState kH = {"h_prev", "h", "h0", "h_all", ""};
const CellState kC = {"c_prev", "c", "c0", "c_all", ""};

// An LSTM with weights of their own for each gate.
Lines lstm() {
  Lines step;
  for (const char* gate : {"i", "f", "o", "g"}) {
    step.push_back(fmt::format("x_{0} = FC(x, W_{0}, b_{0}) axis=2", gate));
    step.push_back(fmt::format("h_{0} = FC(h_prev, U_{0}, d_{0}) axis=2", gate));
    step.push_back(fmt::format("s_{0} = Sum(x_{0}, h_{0})", gate));
  }
  for (const char* line :
       {"i = Sigmoid(s_i)", "f = Sigmoid(s_f)", "o = Sigmoid(s_o)", "g = Tanh(s_g)", "kept = Mul(f, c_prev)",
        "added = Mul(i, g)", "c = Sum(kept, added)", "t = Tanh(c)", "h = Mul(o, t)"})
    step.emplace_back(line);
  return step;
}

Feeds lstm_feeds() {
  Feeds feeds = {{"X", normal<double>({kSteps, kBatch, kIn}, 1)},
                 {"h0", normal<double>({kBatch, kWidth}, 2)},
                 {"c0", normal<double>({kBatch, kWidth}, 3)}};
  uint64_t seed = 4;
  for (const char* gate : {"i", "f", "o", "g"}) {
    feeds.emplace_back(fmt::format("W_{}", gate), normal<double>({kWidth, kIn}, seed++, 0, 0.5));
    feeds.emplace_back(fmt::format("b_{}", gate), normal<double>({kWidth}, seed++));
    feeds.emplace_back(fmt::format("U_{}", gate), normal<double>({kWidth, kWidth}, seed++, 0, 0.5));
    feeds.emplace_back(fmt::format("d_{}", gate), normal<double>({kWidth}, seed++));
  }
  return feeds;
}

Feeds small_feeds() {
  return {{"X", normal<double>({kSteps, 4, kIn}, 1)},
          {"h0", normal<double>({4, 4}, 2)},
          {"U", normal<double>({4, 4}, 3)},
          {"V", normal<double>({4, 4}, 4)},
          {"W", normal<double>({6, 4}, 5)},
          {"b", normal<double>({4}, 6)},
          {"d", normal<double>({6}, 7)},
          {"M", normal<double>({4, kIn}, 8)},
          {"N", normal<double>({4, 6}, 9)}};
}

// Of the step net's operators in the full form, and of those in front of the network.
std::string types_of(const Cell& cell, const Feeds& feeds) {
  const NetDef net = expanded_net(cell, feeds);
  std::string types;
  for (const OperatorDef& op : net.op()) {
    if (op.type() != "RecurrentNetwork") {
      types += op.type() + " ";
      continue;
    }
    types += "|";
    for (const OperatorDef& inner : find_arg(op, "step_net")->n().op()) types += " " + inner.type();
  }
  return types;
}

TEST(MergeProducts, GatesBecomeOneProductEach) {
  Cell cell = {lstm(), {kH, kC}};
  Workspace workspace;
  const auto counts = [&] {
    return operator_counts(run_programs(workspace, cell, lstm_feeds(), "h_all", {"X", "h0", "c0", "W_i", "U_g"}));
  };
  const OperatorCounts merged = counts();
  cell.disabled_passes = {"merge"};
  const OperatorCounts apart = counts();
  EXPECT_EQ(merged.forward_steps, 2);  // a product and a loop
  EXPECT_EQ(merged.backward_steps, 2);
  EXPECT_GT(apart.forward_steps, 4);
  EXPECT_GT(apart.backward_steps, 4);
}

TEST(MergeProducts, EqualsTheUnrolledNet) {
  for (const auto& disabled : pass_choices()) {
    Cell cell = {lstm(), {kH, kC}};
    cell.disabled_passes = disabled;
    EXPECT_EQ(check_against_unrolled(cell, lstm_feeds()), "") << fmt::format("{}", fmt::join(disabled, ", "));
  }
}

struct Form {
  const char* name;
  Lines step;
  const char* types;
};

void PrintTo(const Form& f, std::ostream* out) { *out << f.name; }

const std::string kU = "u = FC(h_prev, U, b) axis=2", kV = "v = FC(h_prev, V, b) axis=2", kHSum = "h = Sum(u, v)";

const std::vector<Form> kForms = {
    {"TwoOfOneInput", {kU, kV, kHSum}, "Concat Concat | FC SplitByRows Sum"},
    {"OneBiasOfBoth", {kU, kV, "h = Mul(u, v)"}, "Concat Concat | FC SplitByRows Mul"},
    {"OtherWidths",
     {"w = FC(h_prev, W, d) axis=2", kU, "n = FC(w, N, b) axis=2", "h = Sum(u, n)"},
     "Concat Concat | FC SplitByRows FC Sum"},
    {"TheSameWeightsTwice", {kU, "v = FC(h_prev, U, b) axis=2", kHSum}, "Concat Concat | FC SplitByRows Sum"},
    {"WeightsReadElsewhere",
     {kU, kV, "r = FC(u, U, b) axis=2", "h = Sum(r, v)"},
     "Concat Concat | FC SplitByRows FC Sum"},
    {"TwoInputs",
     {"m = FC(x, M, b) axis=2", kU, kV, "n = FC(x, M, b) axis=2", "h = Sum(m, u, v, n)"},
     "Concat Concat Concat Concat | FC SplitByRows FC SplitByRows Sum"},
    {"AnotherAxis", {kU, "v = FC(h_prev, V, b) axis=-1", kHSum}, "| FC FC Sum"},
    {"AnOutputWrittenTwice", {kU, kV, "s = Sum(u, v)", "v = Tanh(s)", "h = Sum(v, h_prev)"}, "| FC FC Sum Tanh Sum"},
    {"NoBiases", {"u = FC(h_prev, U) axis=2", "v = FC(h_prev, V) axis=2", kHSum}, "Concat | FC SplitByRows Sum"},
    {"BiasesOfSome",
     {kU, "v = FC(h_prev, V) axis=2", "r = FC(h_prev, U) axis=2", "h = Sum(u, v, r)"},
     "Concat | FC FC SplitByRows Sum"},
    {"WeightsMadeInside", {"q = Sum(U, V)", "u = FC(h_prev, q, b) axis=2", kV, kHSum}, "| Sum FC FC Sum"},
};

class MergeForms : public ::testing::TestWithParam<Form> {};

TEST_P(MergeForms, AreMergedWhereTheyCanBe) {
  const Cell cell = {GetParam().step, {kH}};
  Feeds feeds;
  const NetDef step = step_net_of(cell);
  for (const auto& feed : small_feeds()) {
    const bool read = std::ranges::any_of(
        step.op(), [&](const OperatorDef& op) { return std::ranges::count(op.input(), feed.first) > 0; });
    if (read || feed.first == "X" || feed.first == "h0") feeds.push_back(feed);
  }
  EXPECT_EQ(types_of(cell, feeds), GetParam().types);
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

INSTANTIATE_TEST_SUITE_P(All, MergeForms, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return info.param.name; });

Feeds of_two() {
  const Feeds all = small_feeds();
  return {all[0], all[1], all[2], all[3], all[5]};
}

TEST(MergeProducts, WhatIsShownIsStillThere) {
  Cell cell = {{kU, kV, kHSum}, {kH}};
  cell.outputs = {{"v", "v_all"}};
  EXPECT_EQ(types_of(cell, of_two()), "Concat Concat | FC SplitByRows Sum");
  EXPECT_EQ(check_against_unrolled(cell, of_two()), "");
}

TEST(MergeProducts, WhatIsComputedAgainStaysApart) {
  Cell cell = {{kU, kV, "t = Tanh(u)", "h = Mul(t, v)"}, {kH}, {"u"}};
  EXPECT_EQ(types_of(cell, of_two()), "| FC FC Tanh Mul");
  EXPECT_EQ(check_against_unrolled(cell, of_two()), "");
}

TEST(MergeProducts, ASwitchTurnsItOff) {
  const Cell cell = {{kU, kV, kHSum}, {kH}, {}, {}, {"merge"}};
  EXPECT_EQ(types_of(cell, of_two()), "| FC FC Sum");
}

// One of several weights is trained.
TEST(MergeProducts, GradientsOfSomeWeightsAlone) {
  const Cell cell = {{kU, kV, "h = Mul(u, v)"}, {kH}};
  NetDef net = expanded_net(cell, of_two());
  net.add_external_input("g");
  add_gradient_operators(net, {.targets = {{"h_all", "g"}}, .wanted = {"V"}, .stop = {}});
  Workspace workspace;
  for (const auto& [name, value] : of_two()) workspace.tensor(name) = value.clone();
  workspace.tensor("g") = normal<double>({kSteps, 4, 4}, 7);
  RunContext run;
  run_net_once(net, workspace, run);
  const Tensor alone = workspace.fetch("V_grad").clone();
  EXPECT_EQ(workspace.find("U_grad"), nullptr);
  const CellResults all = run_recurrent(cell, of_two(), {{"h_all", workspace.fetch("g")}});
  EXPECT_EQ(compare(alone, all.gradients.at("V"), 1e-10), "");
}

// A Concat of the sequence and the state is split behind the merge.
TEST(MergeProducts, OverAConcat) {
  const Cell cell = {
      {"cat = Concat(x, h_prev) axis=2", "u = FC(cat, U, b) axis=2", "v = FC(cat, V, b) axis=2", "h = Mul(u, v)"},
      {kH}};
  const Feeds feeds = {{"X", normal<double>({kSteps, 4, kIn}, 1)},
                       {"h0", normal<double>({4, 4}, 2)},
                       {"U", normal<double>({4, kIn + 4}, 3)},
                       {"V", normal<double>({4, kIn + 4}, 4)},
                       {"b", normal<double>({4}, 6)}};
  EXPECT_EQ(types_of(cell, feeds), "Concat Concat | FCColumns FCColumns Sum SplitByRows Mul");
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

}  // namespace
}  // namespace stepnet::testing::merge_products_test
