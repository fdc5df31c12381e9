// Gradients of inner losses in step nets: beside other nets that compute the same, and with networks in networks.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/gradient_check.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/recurrent/cell_files.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::learning_rules_test {
namespace {

const Sizes kSizes = {{'T', 5}, {'B', 2}, {'I', 2}, {'H', 3}, {'D', 2}, {'A', 3}};

// The operators of the cell's step net with those that `lines` stand for in the place of Gradients.
NetDef by_hand(NetDef net, const std::vector<OperatorDef>& ops) {
  NetDef& step = *recurrent_op(net).MutableExtension(recurrent)->mutable_step_net();
  NetDef other = step;
  other.clear_op();
  for (const OperatorDef& op : step.op()) {
    if (op.type() != "Gradients") {
      *other.add_op() = op;
      continue;
    }
    for (const OperatorDef& made : ops) *other.add_op() = made;
  }
  step = other;
  return net;
}

CellResults results_of(NetDef net, const Feeds& feeds) {
  CellData data{feeds, {}};
  const auto blobs = run_forward(net, feeds);
  for (const std::string& name : net.external_output())
    data.outside.emplace_back(name, normal<double>(blobs.at(name).shape(), 900 + data.outside.size()));
  expand_recurrent(net);
  CellResults results = run_in_turn(net, {data})[0];
  std::erase_if(results.outputs,
                [&](const auto& output) { return std::ranges::count(net.external_output(), output.first) == 0; });
  return results;
}

TEST(LearningRules, EqualGradientsByHand) {
  const Feeds feeds = cell_feeds("delta_rule", DType::float64, kSizes);
  const NetDef net = cell_net("delta_rule");
  const NetDef other =
      by_hand(net, {make_op("Sub", {"was_read", "v"}, {"e"}),
                    make_op("ExpandDims", {"e"}, {"error"}, {make_arg("dims", std::vector<int64_t>{3})}),
                    make_op("BatchMatMul", {"error", "k"}, {"dW"}, {make_arg("trans_b", 1)})});
  for (const std::vector<std::string>& passes : pass_choices())
    EXPECT_EQ(compare_results(results_of(without_passes(net, passes), feeds), results_of(other, feeds), 1e-10), "")
        << text_of(passes);
}

// What learns by the gradient of what a network in the step makes of its state.
const Cell kInner = {.step = {"a = Mul(g_prev, u)", "z = Sum(a, q)", "g = Tanh(z)"},
                     .states = {{"g_prev", "g", "h_prev", "g_all", "g_last"}},
                     .sequences = {{"Q", "q"}}};

OperatorDef network(const Cell& cell, const std::string& name) {
  OperatorDef op = recurrent_net(cell, {}).op(0);
  op.set_name(name);
  return op;
}

const Feeds kNestedFeeds = {{"X", normal<double>({3, 2, 3})},
                            {"Q", normal<double>({2, 2, 3}, 2)},
                            {"h0", normal<double>({2, 3}, 3)},
                            {"U", normal<double>({3}, 4)}};

std::string check_nested(const Cell& cell, const Feeds& feeds) {
  const Feeds outside = outside_gradients(cell, feeds);
  return compare_results(run_recurrent(cell, feeds, outside), run_unrolled(cell, feeds, outside), 1e-10);
}

const Cell kThroughNetwork = {
    .step = {"u = Copy(U)", "g_all, g_last = Nested()", "e = Sub(g_last, x)", "l = Mul(e, e)",
             "d, dh = Gradients(l, h_prev, g_last)", "n = Negative(d)", "h = Sum(h_prev, n, dh)"},
    .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
    .nested = {network(kInner, "inner")}};

TEST(LearningRules, ThroughANetworkInTheStep) {
  EXPECT_EQ(check_nested(kThroughNetwork, kNestedFeeds), "");
  EXPECT_EQ(check_differences(kThroughNetwork, kNestedFeeds), "");
}

// Nothing is trained outside, but the network in the step still needs what its gradient reads.
TEST(LearningRules, ThroughANetworkOfOneThatIsForwardOnly) {
  NetDef net = recurrent_net(kThroughNetwork, kNestedFeeds);
  const Tensor expected = run_forward(net, kNestedFeeds).at("h_all");
  net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true);
  EXPECT_EQ(compare(run_forward(net, kNestedFeeds).at("h_all"), expected, 0), "");
}

TEST(LearningRules, InANetworkInTheStep) {
  const Cell inner = {.step = {"m = Mul(g_prev, U)", "f = Sub(m, q)", "c = Tanh(f)", "loss = Mul(c, f)",
                               "dg, dU = Gradients(loss, g_prev, U)", "r = Mul(dg, dU)", "g = Sub(g_prev, r)"},
                      .states = {{"g_prev", "g", "h_prev", "g_all", "g_last"}},
                      .sequences = {{"Q", "q"}}};
  const Cell cell = {.step = {"g_all, g_last = Nested()", "l = Mul(g_last, x)", "k = Tanh(l)",
                              "d = Gradients(k, h_prev)", "h = Sum(g_last, d)"},
                     .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
                     .nested = {network(inner, "inner")}};
  EXPECT_EQ(check_nested(cell, kNestedFeeds), "");
  Feeds few = kNestedFeeds;
  few[0].second = normal<double>({2, 1, 3});
  few[1].second = normal<double>({2, 1, 3}, 2);
  few[2].second = normal<double>({1, 3}, 3);
  EXPECT_EQ(check_differences(cell, few, 1e-6), "");
}

// What the second one stands for holds networks, which have the names of their outputs among their arguments.
TEST(LearningRules, OfGradientsOfANetwork) {
  NetDef net = parse_net_text(R"(
    op { type: 'RNN' input: 'X' input: '' input: 'w' input: 'u' input: 'a' input: 'b' output: 'Y'
         arg { name: 'hidden' i: 2 } }
    op { type: 'Mul' input: 'Y' input: 'Y' output: 'l' }
    op { type: 'Gradients' input: 'l' input: 'Y' input: 'X' output: 'dY' output: 'dX' }
    op { type: 'Mul' input: 'dX' input: 'dX' output: 'penalty' }
    op { type: 'Gradients' input: 'penalty' input: 'dY' input: 'u' output: 'ddY' output: 'du' })");
  expand_recurrent(net);
  const GradientSubject subject{net,
                                {{"X", normal<double>({3, 2, 2})},
                                 {"w", normal<double>({2, 2}, 2)},
                                 {"u", normal<double>({2, 2}, 3)},
                                 {"a", normal<double>({2}, 4)},
                                 {"b", normal<double>({2}, 5)}},
                                {"ddY", "du"},
                                {"X", "u", "a"},
                                {},
                                {}};
  EXPECT_EQ(check_gradients(subject).str(), "");
}

// Two losses of one network, whose first states have gradients of their own, also of one timestep, where a state's
// gradient has all its rows. h = p c_prev, c = q h_prev, so that after one timestep dh/dc0 = p and dc/dh0 = q.
TEST(LearningRules, TwoLossesOfOneNetwork) {
  const NetDef net = parse_net_text(R"(
    op { type: 'RecurrentNetwork' name: 'rnn' input: 'X' input: 'h0' input: 'c0' output: 'h_last' output: 'c_last'
         [stepnet.recurrent] {
           step_net { op { type: 'Mul' input: 'c_prev' input: 'p' output: 'h' }
                      op { type: 'Mul' input: 'h_prev' input: 'q' output: 'c' } }
           sequence { outer: 'X' inner: 'x' }
           state { input: 'h_prev' output: 'h' initial: 'h0' last: 'h_last' }
           state { input: 'c_prev' output: 'c' initial: 'c0' last: 'c_last' } } }
    op { type: 'SumElements' input: 'h_last' output: 'loss_h' }
    op { type: 'SumElements' input: 'c_last' output: 'loss_c' }
    op { type: 'Gradients' input: 'loss_h' input: 'h0' input: 'c0' output: 'hh' output: 'hc' }
    op { type: 'Gradients' input: 'loss_c' input: 'h0' input: 'c0' output: 'ch' output: 'cc' })");
  const auto number = [](double value) { return Tensor::of<double>({1, 1, 1}, {value}); };
  for (const int64_t steps : {1, 2, 3}) {
    const auto blobs = run_forward(net, {{"X", Tensor::zeros(DType::float64, {steps, 1, 1})},
                                         {"h0", number(10)},
                                         {"c0", number(20)},
                                         {"p", number(2)},
                                         {"q", number(3)}});
    const double own = steps == 2 ? 6 : 0,
                 of_c = steps == 1   ? 2
                        : steps == 3 ? 12
                                     : 0,
                 of_h = steps == 1   ? 3
                        : steps == 3 ? 18
                                     : 0;
    EXPECT_EQ(blobs.at("hh").data<double>()[0], own) << steps;
    EXPECT_EQ(blobs.at("cc").data<double>()[0], own) << steps;
    EXPECT_EQ(blobs.at("hc").data<double>()[0], of_c) << steps;
    EXPECT_EQ(blobs.at("ch").data<double>()[0], of_h) << steps;
  }
}

const Cell kPlain = {
    .step = {"V1 = Copy(V)", "m = FC(h_prev, V1, c) axis=2", "e = Sub(m, x)", "t = Tanh(e)", "l = Mul(t, e)",
             "d, dV, dm = Gradients(l, h_prev, V1, m)", "n = FC(d, dV, c) axis=2", "s = Sub(n, dm)", "h = Tanh(s)"},
    .states = {{"h_prev", "h", "h0", "h_all", "h_last"}}};
const Feeds kPlainFeeds = {{"X", normal<double>({4, 2, 3})},
                           {"h0", normal<double>({2, 3}, 3)},
                           {"V", normal<double>({3, 3}, 4)},
                           {"c", normal<double>({3}, 5)}};

TEST(LearningRules, EqualTheUnrolledNet) {
  for (const std::vector<std::string>& passes : pass_choices()) {
    Cell cell = kPlain;
    cell.disabled_passes = passes;
    EXPECT_EQ(check_against_unrolled(cell, kPlainFeeds), "") << text_of(passes);
    cell.reverse = true;
    EXPECT_EQ(check_against_unrolled(cell, kPlainFeeds), "") << text_of(passes);
  }
  EXPECT_EQ(check_differences(kPlain, kPlainFeeds), "");
}

TEST(LearningRules, MayBeComputedAgain) {
  Cell cell = kPlain;
  cell.recompute = {"m", "e", "t", "dm", "n"};
  const Feeds outside = outside_gradients(cell, kPlainFeeds);
  EXPECT_EQ(compare_results(run_recurrent(cell, kPlainFeeds, outside), run_recurrent(kPlain, kPlainFeeds, outside), 0),
            "");
}

// Samples that have ended learn no more.
TEST(LearningRules, EndWithTheirSamples) {
  Cell cell = kPlain;
  cell.lengths = "lengths";
  Feeds feeds = kPlainFeeds;
  feeds.emplace_back("lengths", Tensor::of<int32_t>({2}, {4, 2}));
  cell.step = {"m = Mul(h_prev, V)",       "e = Sub(m, x)",     "t = Tanh(e)", "l = Mul(t, e)",
               "d = Gradients(l, h_prev)", "h = Sub(h_prev, d)"};
  feeds[2].second = normal<double>({3}, 4);
  std::erase_if(feeds, [](const auto& feed) { return feed.first == "c"; });
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

TEST(LearningRules, MistakesNameTheNetworkAndItsFile) {
  Cell cell = kPlain;
  cell.step = {"m = Mul(h_prev, V)", "d = Gradients(m, x)", "h = Sub(m, d)"};
  const std::string text = error_text([&] { expanded_net(cell, kPlainFeeds); });
  expect_contains(text, "no blob \"x\" before it");
  expect_contains(text, "the short form of operator 0 (RecurrentNetwork)");
  cell.step = {"m = Mul(h_prev, V)", "u = Tanh(x)", "d = Gradients(m, x)", "h = Sub(m, d)"};
  expect_contains(error_text([&] { expanded_net(cell, kPlainFeeds); }), "does not depend on \"x\"");
}

// In half types and within a budget.
TEST(LearningRules, AreEstimatedLikeOtherCells) {
  std::vector<std::string> command = {"estimate", source_path("tools/examples/cells/titans_memory.pbtxt"), "--train",
                                      "--loss", "y_all"};
  for (const char* feed : {"x=float[64,8,32]", "M1_0=float[1,8,16,16]", "M2_0=float[1,8,16,16]",
                           "S1_0=float[1,8,16,16]", "S2_0=float[1,8,16,16]"})
    command.insert(command.end(), {"--feed", feed});
  for (const char* parameter : {"W_k=[16,32]", "W_v=[16,32]", "W_q=[16,32]", "W_g=[3,32]", "b_g=[3]"})
    command.insert(command.end(), {"--parameter", parameter});
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--precision", "bfloat16"}, {"--memory-budget", "3000000"}}) {
    std::vector<std::string> whole = command;
    whole.insert(whole.end(), more.begin(), more.end());
    EXPECT_EQ(stepnet(whole).code, 0) << stepnet(whole).text();
  }
}

}  // namespace
}  // namespace stepnet::testing::learning_rules_test
