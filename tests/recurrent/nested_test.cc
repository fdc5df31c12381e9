// Recurrent networks in the step nets of recurrent networks.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::nested_test {
namespace {

OperatorDef network(const Cell& cell, const std::string& name, const std::vector<std::string>& more_inputs = {}) {
  OperatorDef op = recurrent_net(cell, {}).op(0);
  op.set_name(name);
  for (const std::string& input : more_inputs) op.add_input(input);
  return op;
}

// Runs over all of Q [S, B, 3] in every timestep, from the outer state, and reads the outer row x.
const Cell kInner = {.step = {"a = FC(g_prev, U, d) axis=2", "m = Mul(a, q)", "z = Sum(m, x)", "g = Tanh(z)"},
                     .states = {{"g_prev", "g", "h_prev", "g_all", "g_last"}},
                     .sequences = {{"Q", "q"}},
                     .outputs = {{"a", "A"}}};

Cell outer(const Cell& inner, const Lines& after) {
  Cell cell = {.step = {"g_all = Nested()"},
               .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
               .nested = {network(inner, "inner")}};
  cell.step.insert(cell.step.end(), after.begin(), after.end());
  return cell;
}

Feeds feeds_of(int64_t steps, int64_t batch, int64_t inner_steps) {
  return {{"X", normal<double>({steps, batch, 3})},
          {"Q", normal<double>({inner_steps, batch, 3}, 2)},
          {"h0", normal<double>({batch, 3}, 3)},
          {"U", normal<double>({3, 3}, 4)},
          {"d", normal<double>({3}, 5)}};
}

std::string check_nested(const Cell& cell, const Feeds& feeds) {
  const Feeds outside = outside_gradients(cell, feeds);
  return compare_results(run_recurrent(cell, feeds, outside), run_unrolled(cell, feeds, outside), 1e-10);
}

TEST(Nested, IsTheNetUnrolled) {
  const Cell cell = outer(kInner, {"s = Sum(g_last, x)", "h = Tanh(s)"});
  for (const auto& [steps, inner_steps] : {std::pair{4, 3}, {1, 1}, {4, 1}, {1, 3}, {0, 3}, {3, 0}})
    for (const int64_t batch : {2, 1, 0}) {
      SCOPED_TRACE(fmt::format("T {}, S {}, B {}", steps, inner_steps, batch));
      EXPECT_EQ(check_nested(cell, feeds_of(steps, batch, inner_steps)), "");
    }
  EXPECT_EQ(check_differences(cell, feeds_of(3, 2, 2)), "");
}

// What the nested network gives is read again in the backward pass, as a view and as an output of its step.
TEST(Nested, ResultsThatTheGradientReads) {
  const Cell cell = outer(kInner, {"sq = Mul(g_all, A)", "w = SumElements(sq)", "t = Tanh(g_last)",
                                   "v = Mul(t, w) broadcast=1", "s = Sum(v, x)", "h = Tanh(s)"});
  EXPECT_EQ(check_nested(cell, feeds_of(4, 2, 3)), "");
  EXPECT_EQ(check_differences(cell, feeds_of(3, 2, 2)), "");
}

// The backward pass runs the nested network again, from what it was given, which has been overwritten since.
TEST(Nested, FromWhatIsOverwrittenLater) {
  const Cell inner = {.step = {"m = Mul(q, g_prev)", "g = Tanh(m)"},
                      .states = {{"g_prev", "g", "v", "g_all", "g_last"}},
                      .sequences = {{"Q", "q"}}};
  const Feeds all = feeds_of(3, 2, 2);
  const Feeds feeds(all.begin(), all.begin() + 3);
  for (const char* over : {"v = Sub(v, g_last)", "v = Tanh(v)", "a = Alias(v)"}) {
    Cell cell = {.step = {"v = Add(x, h_prev)", "g_all = Nested()", over, "s = Add(v, g_last)", "h = Tanh(s)"},
                 .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
                 .nested = {network(inner, "inner")}};
    if (over[0] == 'a') cell.step.insert(cell.step.begin() + 3, "a = Sigmoid(a)");
    EXPECT_EQ(check_nested(cell, feeds), "") << over;
    EXPECT_EQ(check_differences(cell, feeds), "") << over;
  }
}

// The last state of the nested network is that of the outer one, and an output of it.
TEST(Nested, ResultsThatAreStatesAndOutputs) {
  Cell cell = {.step = {"g_all = Nested()"},
               .states = {{"h_prev", "g_last", "h0", "h_all", "h_last"}},
               .nested = {network(kInner, "inner")}};
  EXPECT_EQ(check_nested(cell, feeds_of(4, 2, 3)), "");
  cell.step.push_back("h = Tanh(g_last)");
  cell.states[0].output = "h";
  cell.outputs = {{"g_last", "G"}};
  EXPECT_EQ(check_nested(cell, feeds_of(4, 2, 3)), "");
  EXPECT_EQ(check_differences(cell, feeds_of(2, 2, 2)), "");
}

// Nothing is copied but what becomes a state of the outer network.
TEST(Nested, CopiesWhatBecomesAState) {
  Cell cell = outer(kInner, {"s = Sum(g_last, x)", "h = Tanh(s)"});
  EXPECT_EQ(run_recurrent(cell, feeds_of(4, 2, 3), {}).copied, 0);
  cell.states[0].output = "g_last";
  EXPECT_EQ(run_recurrent(cell, feeds_of(4, 2, 3), {}).copied, 4 * 2 * 3 * 8);
}

TEST(Nested, TwoInOneStep) {
  Cell second = kInner;
  second.step = {"z2 = Sum(q2, k_prev)", "k = Tanh(z2)"};
  second.sequences = {{"g_all", "q2"}};
  second.states = {{"k_prev", "k", "", "k_all", "k_last", {3}}};
  second.outputs = {};
  Cell cell = outer(kInner, {"k_all = Nested()", "s = Sum(k_last, x)", "h = Tanh(s)"});
  cell.nested.push_back(network(second, "second"));
  EXPECT_EQ(check_nested(cell, feeds_of(4, 2, 3)), "");
  EXPECT_EQ(check_differences(cell, feeds_of(2, 2, 2)), "");
}

TEST(Nested, InReverseAndWithLengths) {
  Cell inner = kInner;
  inner.reverse = true;
  inner.lengths = "inner_lengths";
  Cell cell = outer(inner, {"s = Sum(g_last, x)", "h = Tanh(s)"});
  cell.lengths = "lengths";
  cell.reverse = true;
  Feeds feeds = feeds_of(4, 2, 3);
  feeds.emplace_back("inner_lengths", Tensor::of<int32_t>({2}, {3, 1}));
  feeds.emplace_back("lengths", Tensor::of<int32_t>({2}, {2, 4}));
  EXPECT_EQ(check_nested(cell, feeds), "");
  EXPECT_EQ(check_differences(cell, feeds), "");
}

TEST(Nested, ToDepthTwo) {
  const Cell innermost = {.step = {"u = Mul(k_prev, r)", "k = Tanh(u)"},
                          .states = {{"k_prev", "k", "g_prev", "k_all", "k_last"}},
                          .sequences = {{"R", "r"}}};
  const Cell middle = {.step = {"k_all = Nested()", "z = Sum(k_last, q)", "g = Tanh(z)"},
                       .states = {{"g_prev", "g", "h_prev", "g_all", "g_last"}},
                       .sequences = {{"Q", "q"}},
                       .nested = {network(innermost, "innermost")}};
  Cell cell = outer(middle, {"s = Sum(g_last, x)", "h = Tanh(s)"});
  cell.nested = {network(middle, "middle", {"R"})};
  const Feeds feeds = {{"X", normal<double>({3, 2, 3})},
                       {"Q", normal<double>({2, 2, 3}, 2)},
                       {"R", normal<double>({3, 2, 3}, 3)},
                       {"h0", normal<double>({2, 3}, 4)}};
  EXPECT_EQ(check_nested(cell, feeds), "");
  EXPECT_EQ(check_differences(cell, feeds), "");
}

// A step net that holds `width` networks, each of which holds as many, and so on.
std::string networks(int depth, int width, const std::string& name) {
  if (depth == 0) return fmt::format("op {{ type: 'Tanh' input: 'x{0}' output: 'y{0}' }}", name);
  std::string text, terms;
  for (int i = 0; i < width; ++i) {
    const std::string inner = fmt::format("{}_{}", name, i);
    text += fmt::format(
        "op {{ type: 'RecurrentNetwork' name: 'r{0}' input: 'X' input: 'h0' output: 'last{0}' [stepnet.recurrent] {{"
        "sequence {{ outer: 'X' inner: 'x{0}' }} timestep: 't{0}'"
        "state {{ input: 'h{0}' output: 'g{0}' initial: 'h0' last: 'last{0}' }}"
        "step_net {{ {1} op {{ type: 'Sum' input: 'h{0}' input: 'y{0}' output: 'g{0}' }} }} }} }}",
        inner, networks(depth - 1, width, inner));
    terms += fmt::format(" input: 'last{}'", inner);
  }
  return text + fmt::format(" op {{ type: 'Sum'{} output: 'y{}' }}", terms, name);
}

// What a level stands for grows with its depth, too.
TEST(Nested, TooManyInOneAnother) {
  NetDef deep = parse_net_text(networks(16, 1, ""));
  EXPECT_NO_THROW(expand_recurrent(deep));
  NetDef few = parse_net_text(networks(3, 2, ""));
  EXPECT_NO_THROW(expand_recurrent(few));
  NetDef many = parse_net_text(networks(7, 2, ""));
  const std::string error = error_of([&] { expand_recurrent(many); });
  EXPECT_NE(error.find("that are allowed where networks hold networks"), std::string::npos) << error.substr(0, 2000);
}

// Joining weights belongs before a network, where it runs once; before one in a step net it would run in every
// timestep.
TEST(Nested, ProductsAreNotMerged) {
  const std::string inner =
      "op { type: 'RecurrentNetwork' name: 'r' input: 'X' input: 'g' output: 'last' [stepnet.recurrent] {"
      "sequence { outer: 'X' inner: 'x' } state { input: 'p' output: 's' initial: 'g' last: 'last' }"
      "step_net { op { type: 'FC' input: 'x' input: 'U' input: 'b' output: 'u' arg { name: 'axis' i: 2 } }"
      "op { type: 'FC' input: 'x' input: 'V' input: 'b' output: 'v' arg { name: 'axis' i: 2 } }"
      "op { type: 'Sum' input: 'u' input: 'v' input: 'p' output: 's' } } } }";
  const auto expanded = [](const std::string& text) {
    NetDef net = parse_net_text(text);
    expand_recurrent(net);
    return to_text(net);
  };
  EXPECT_NE(expanded(inner).find("SplitByRows"), std::string::npos);
  const std::string outer =
      "op { type: 'RecurrentNetwork' name: 'o' input: 'Y' input: 'g0' output: 'end' [stepnet.recurrent] {"
      "sequence { outer: 'Y' inner: 'y' } timestep: 't' state { input: 'g' output: 'n' initial: 'g0' last: 'end' }"
      "step_net { " +
      inner + " op { type: 'Sum' input: 'last' input: 'y' output: 'n' } } } }";
  EXPECT_EQ(expanded(outer).find("SplitByRows"), std::string::npos);
}

// The same name in the surrounding net is another network.
TEST(Nested, HasBlobsOfItsOwn) {
  const Cell cell = outer(kInner, {"s = Sum(g_last, x)", "h = Tanh(s)"});
  const Feeds feeds = feeds_of(3, 2, 2);
  const Feeds outside = outside_gradients(cell, feeds);
  NetDef net = recurrent_net(cell, feeds);
  net.mutable_op(0)->set_name("inner");
  expand_recurrent(net);
  EXPECT_EQ(compare_results(run_with_gradients(net, feeds, outside), run_unrolled(cell, feeds, outside), 1e-10), "");
}

TEST(Nested, ShapesMayChangeFromRunToRun) {
  const Cell cell = outer(kInner, {"s = Sum(g_last, x)", "h = Tanh(s)"});
  std::vector<CellData> data;
  for (const auto& [steps, batch, inner] :
       {std::tuple{4, 2, 3}, {2, 2, 3}, {4, 1, 2}, {0, 1, 1}, {4, 2, 3}, {4, 2, 3}}) {
    const Feeds feeds = feeds_of(steps, batch, inner);
    data.push_back({feeds, outside_gradients(cell, feeds)});
  }
  const std::vector<CellResults> results = run_in_turn(expanded_net(cell, data[0].feeds), data);
  for (size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(compare_results(results[i], run_unrolled(cell, data[i].feeds, data[i].outside), 1e-10), "") << i;
}

// Each outer timestep draws numbers of its own, and the gradient has those of the forward pass.
TEST(Nested, RandomDraws) {
  Cell inner = kInner;
  inner.step = {"f, mask = Dropout(q)", "m = Mul(g_prev, f)", "g = Sum(m, x)"};
  inner.outputs = {{"f", "F"}};
  Cell cell = outer(inner, {"w = SumElements(F)", "h = Mul(g_last, w) broadcast=1"});
  cell.outputs = {{"w2", "W2"}};
  cell.step.push_back("w2 = Mul(x, w) broadcast=1");
  const Feeds some = feeds_of(3, 20, 2);
  const Feeds feeds(some.begin(), some.begin() + 3);
  Feeds ones = feeds;
  ones[0].second = normal<double>({3, 20, 3});
  for (int64_t t = 1; t < 3; ++t) ones[0].second.row(t).copy_from(ones[0].second.row(0));
  const Tensor sums = run_recurrent(cell, ones, {}).outputs.at("W2");
  EXPECT_NE(compare(sums.row(0), sums.row(1), 1e-6), "");
  EXPECT_NE(compare(sums.row(1), sums.row(2), 1e-6), "");
  const Feeds few = feeds_of(3, 1, 2);
  EXPECT_EQ(check_differences(cell, {few.begin(), few.begin() + 3}), "");
}

TEST(Nested, AnErrorHasBothPlaces) {
  const Cell cell = outer(kInner, {"s = Sum(g_last, x)", "h = Tanh(s)"});
  Feeds feeds = feeds_of(3, 2, 2);
  feeds[1].second = normal<double>({2, 1, 3});
  const std::string text = error_of([&] { run_in_turn(expanded_net(cell, feeds), {{feeds, {}}}); });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "RecurrentNetwork: the initial state [1, 2, 3] is for a batch of 2, but the sequence's is 1");
}

}  // namespace
}  // namespace stepnet::testing::nested_test
