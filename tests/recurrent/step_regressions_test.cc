// Step nets that once came out wrong, or were refused though they are valid, each shrunk to what it takes. All are
// compared with the same net unrolled.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/net.h"
#include "stepnet/workspace.h"
#include "tests/core/errors.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::step_regressions_test {
namespace {

const CellState kState = {"h_prev", "h", "h0", "h_all"};

Feeds sized(int64_t steps, int64_t batch, int64_t width) {
  return {{"X", normal<double>({steps, batch, width}, 1)}, {"h0", normal<double>({1, batch, width}, 2)}};
}

// A [1, B, D] tensor from outside that the step simply adds: its gradient of one timestep is the output's row, which an
// operator before the block reads for all timesteps.
TEST(StepRegressions, ASumOverTimeOfABlobThatIsReadInBlocks) {
  for (const int64_t steps : {2, 4, 9}) {
    for (const int64_t batch : {1, 3, 130}) {
      Feeds feeds = sized(steps, batch, 4);
      feeds.emplace_back("k", normal<double>({1, batch, 4}, 3));
      feeds.emplace_back("W", normal<double>({4, 4}, 4));
      feeds.emplace_back("b", normal<double>({4}, 5));
      const Cell delay = {.step = {"v = Add(k, h_prev)", "y = Sub(v, x)", "h = Negative(x)"},
                          .states = {kState},
                          .outputs = {{"y", "Y"}}};
      EXPECT_EQ(check_against_unrolled(delay, feeds), "") << steps << ' ' << batch;
      const Cell product = {.step = {"v = FC(h_prev, W, b) axis=2", "h = Tanh(h_prev)", "y = Add(k, v)"},
                            .states = {kState},
                            .outputs = {{"y", "Y"}}};
      EXPECT_EQ(check_against_unrolled(product, feeds), "") << steps << ' ' << batch;
    }
  }
}

// The gradients of a Concat's parts have sizes that the compiler does not know, so they cannot cross to another stage.
TEST(StepRegressions, StacksWhoseLayersJoinBlobs) {
  Feeds feeds = {{"X", normal<double>({4, 2, 3}, 1)},    {"h1_0", normal<double>({1, 2, 4}, 2)},
                 {"h2_0", normal<double>({1, 2, 4}, 3)}, {"W1", normal<double>({4, 3}, 4)},
                 {"U1", normal<double>({4, 4}, 5)},      {"b1", normal<double>({4}, 6)},
                 {"W2", normal<double>({4, 8}, 7)},      {"b2", normal<double>({4}, 8)}};
  const Lines first = {"x1 = FC(x, W1, b1) axis=2", "u1 = FC(h1_prev, U1, b1) axis=2", "s1 = Sum(x1, u1)",
                       "h1 = Tanh(s1)"};
  const Lines seconds[] = {
      {"j, sizes = Concat(h1, h2_prev) axis=2", "z = FC(j, W2, b2) axis=2", "h2 = Tanh(z)"},
      {"j, sizes = Concat(h1, h2_prev) axis=2", "t = Tanh(j)", "z = FC(t, W2, b2) axis=2", "h2 = Tanh(z)"}};
  for (const Lines& second : seconds) {
    Cell cell = {.step = first, .states = {{"h1_prev", "h1", "h1_0", "h1_all"}, {"h2_prev", "h2", "h2_0", "h2_all"}}};
    cell.step.insert(cell.step.end(), second.begin(), second.end());
    for (const std::vector<std::string>& disabled : pass_choices()) {
      cell.disabled_passes = disabled;
      EXPECT_EQ(check_against_unrolled(cell, feeds), "");
    }
  }
}

// The same of what Slice, Split and Reshape make by bounds and sizes that are inputs, and of gradients of such values.
TEST(StepRegressions, StacksThatHandOnShapesMadeOfData) {
  const auto integers = [](std::initializer_list<int64_t> values) {
    return Tensor::of<int64_t>({static_cast<int64_t>(values.size())}, values);
  };
  const Feeds feeds = {{"X", normal<double>({5, 3, 3}, 1)},
                       {"h1_0", normal<double>({1, 3, 4}, 2)},
                       {"h2_0", normal<double>({1, 3, 2}, 3)},
                       {"W1", normal<double>({4, 3}, 4)},
                       {"U1", normal<double>({4, 4}, 5)},
                       {"b1", normal<double>({4}, 6)},
                       {"U2", normal<double>({2, 2}, 7)},
                       {"b2", normal<double>({2}, 8)},
                       {"from", integers({0, 0, 1})},
                       {"to", integers({-1, -1, 3})},
                       {"sizes", integers({2, 2})},
                       {"apart", integers({0, 0, 2, 2})},
                       {"whole", integers({0, 0, 4})},
                       {"V2", normal<double>({2, 6}, 9)}};
  const std::pair<Lines, std::vector<std::string>> cases[] = {
      {{"part = Slice(h1, from, to)"}, {}},
      {{"p, q = Split(h1, sizes) axis=2", "part = Sum(p, q)"}, {}},
      {{"other, part = Split(h1, sizes) axis=2"}, {"other", "part"}},
      {{"wide, four = Reshape(h1, apart)", "t = Tanh(wide)", "flat, five = Reshape(t, whole)",
        "part = Slice(flat, from, to)"},
       {"wide", "four", "t", "flat", "five"}},
      {{"wide, four = Reshape(h1, apart)", "flat, five = Reshape(wide, four)", "part = Slice(flat, from, to)"},
       {"wide", "four", "flat", "five"}},
      {{"j, parts = Concat(h1, h2_prev) axis=2", "n, mean, spread = LayerNorm(j) axis=2",
        "part = FC(n, V2, b2) axis=2"},
       {}}};
  for (const auto& [lines, recompute] : cases) {
    Cell cell = {
        .step = {"x1 = FC(x, W1, b1) axis=2", "u1 = FC(h1_prev, U1, b1) axis=2", "s1 = Sum(x1, u1)", "h1 = Tanh(s1)"},
        .states = {{"h1_prev", "h1", "h1_0", "h1_all"}, {"h2_prev", "h2", "h2_0", "h2_all"}},
        .recompute = recompute};
    cell.step.insert(cell.step.end(), lines.begin(), lines.end());
    for (const char* line : {"r = FC(h2_prev, U2, b2) axis=2", "s2 = Sum(part, r)", "h2 = Tanh(s2)"})
      cell.step.emplace_back(line);
    for (const std::vector<std::string>& disabled : pass_choices()) {
      cell.disabled_passes = disabled;
      EXPECT_EQ(check_against_unrolled(cell, feeds), "")
          << lines[0] << " without " << fmt::to_string(fmt::join(disabled, " "));
    }
  }
}

// Gradients of states that depend on themselves alone, or on the sequence alone, and are read by operators on blocks.
TEST(StepRegressions, StatesThatDependOnThemselvesAlone) {
  const Feeds states = {{"X", normal<double>({5, 3, 4}, 1)},  {"h0", normal<double>({1, 3, 4}, 2)},
                        {"y0", normal<double>({1, 3, 4}, 3)}, {"U", normal<double>({4, 4}, 4)},
                        {"V", normal<double>({4, 8}, 5)},     {"b", normal<double>({4}, 6)}};
  const CellState shown = {"y_prev", "y", "y0", "y_all"};
  Cell readout = {.step = {"c, sizes = Concat(h_prev, h_prev) axis=2", "q = Mul(c, c)", "g = FC(h_prev, U, b) axis=2",
                           "y = FC(q, V, b) axis=2", "h = Negative(g)"},
                  .states = {kState, shown}};
  Feeds wide = {states[0], {"y0", normal<double>({1, 3, 8}, 3)}, states[1]};
  wide.emplace_back("lengths", Tensor::of<int32_t>({3}, {2, 5, 4}));
  Cell joined = {.step = {"v, sizes = Concat(h_prev, x) axis=2", "y = Tanh(v)", "h = Tanh(h_prev)"},
                 .states = {kState, shown},
                 .lengths = "lengths"};
  Cell late = {.step = {"v, sizes = Concat(h_prev, y_prev) axis=2", "h = Negative(h_prev)", "y = Tanh(x)"},
               .states = {kState, shown},
               .outputs = {{"v", "Y"}}};
  for (const std::vector<std::string>& disabled : pass_choices()) {
    readout.disabled_passes = joined.disabled_passes = late.disabled_passes = disabled;
    EXPECT_EQ(check_against_unrolled(readout, states), "");
    EXPECT_EQ(check_against_unrolled(joined, wide), "");
    EXPECT_EQ(check_against_unrolled(late, {states[0], states[1], states[2]}), "");
  }
}

// A shape that has the batch's size as a number fits one timestep alone: the state's gradient is made in each.
TEST(StepRegressions, ShapesThatFitOneTimestepAlone) {
  const Feeds feeds = {{"X", normal<double>({3, 1, 2}, 1)},
                       {"h0", normal<double>({1, 1, 1}, 2)},
                       {"P", normal<double>({1, 2}, 3)},
                       {"k", normal<double>({1, 1, 1}, 4)}};
  Cell cell = {
      .step = {"m = MatMul(x, P) trans_b=1", "h, old = Reshape(m) shape=1/1/1", "v = Mul(h_prev, h)", "y = Add(k, v)"},
      .states = {kState},
      .outputs = {{"y", "Y"}}};
  for (const bool reverse : {false, true})
    for (const std::vector<std::string>& disabled : pass_choices()) {
      cell.reverse = reverse;
      cell.disabled_passes = disabled;
      EXPECT_EQ(check_against_unrolled(cell, feeds), "");
    }
}

// Of an output that nothing reads the gradient is zeros of its shape, which is said to be missing.
TEST(StepRegressions, AGradientOfAShapeMadeOfData) {
  Feeds feeds = sized(2, 2, 4);
  feeds.emplace_back("sizes", Tensor::of<int64_t>({2}, {2, 2}));
  feeds[1].second = normal<double>({1, 2, 2}, 2);
  const Cell cell = {.step = {"other, part = Split(x, sizes) axis=2", "s = Sum(part, h_prev)", "h = Tanh(s)"},
                     .states = {kState}};
  const std::string text = error_of([&] { run_recurrent(cell, feeds, outside_gradients(cell, feeds)); });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "ZerosLike: the shape of \"other\" depends on data, but the backward step net needs its shape in every "
            "timestep");
  EXPECT_NE(text.find("name the blob in \"recompute\""), std::string::npos) << text;
}

// One operator makes two terms of a sum, and can add to both: the sum has to wait for it.
TEST(StepRegressions, SumsOfTwoResultsOfOneOperator) {
  Feeds feeds = sized(3, 2, 4);
  feeds.emplace_back("p", normal<double>({4}, 3));
  Cell cell = {.step = {"dx, dw, db = ElementwiseLinearGradient(x, h_prev, p) axis=2", "s = Sum(dw, db)",
                        "h = Add(dx, s) broadcast=1"},
               .states = {kState}};
  for (const std::vector<std::string>& disabled : pass_choices()) {
    cell.disabled_passes = disabled;
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  }
}

Feeds unit_feeds() {
  return {{"X", normal<double>({2, 2, 3}, 1)},
          {"h0", normal<double>({1, 2, 2}, 2)},
          {"c0", normal<double>({1, 2, 2}, 3)},
          {"W", normal<double>({8, 3}, 4)},
          {"b", normal<double>({8}, 5)}};
}

// The unit saves activated gates in place of its input, which the step shows, or reads again, under another name.
TEST(StepRegressions, UnitsThatReadTheirGatesUnderAnotherName) {
  const std::vector<CellState> states = {kState, {"c_prev", "c", "c0", "c_all"}};
  const Cell shown = {.step = {"gates = FC(x, W, b) axis=2", "sums = Alias(gates)",
                               "h, c = LSTMUnit(h_prev, c_prev, sums, timestep) sequence_lengths=0"},
                      .states = states,
                      .outputs = {{"gates", "Y"}}};
  EXPECT_EQ(check_against_unrolled(shown, unit_feeds()), "");
  const Cell read = {.step = {"gates = FC(x, W, b) axis=2", "same = Alias(gates)", "q = Sqr(same)",
                              "h, c = LSTMUnit(h_prev, c_prev, gates, timestep) sequence_lengths=0"},
                     .states = states,
                     .outputs = {{"q", "Y"}}};
  EXPECT_EQ(check_against_unrolled(read, unit_feeds()), "");
}

// Its gradient takes the place of the gates, which another name shows.
TEST(StepRegressions, GruUnitsThatReadTheirGatesUnderAnotherName) {
  Feeds feeds = unit_feeds();
  feeds[3].second = normal<double>({6, 3}, 4);
  feeds[4].second = normal<double>({6}, 5);
  feeds.erase(feeds.begin() + 2);
  const Cell shown = {.step = {"gates = FC(x, W, b) axis=2", "sums = Alias(gates)",
                               "h = GRUUnit(h_prev, sums, timestep) sequence_lengths=0"},
                      .states = {kState},
                      .outputs = {{"gates", "Y"}}};
  const Cell read = {.step = {"gates = FC(x, W, b) axis=2", "same = Alias(gates)", "q = Sqr(same)",
                              "h = GRUUnit(h_prev, gates, timestep) sequence_lengths=0"},
                     .states = {kState},
                     .outputs = {{"q", "Y"}}};
  for (Cell cell : {shown, read})
    for (const std::vector<std::string>& disabled : pass_choices()) {
      cell.disabled_passes = disabled;
      EXPECT_EQ(check_against_unrolled(cell, feeds), "");
    }
}

// What is computed again reads what the forward pass read, though an operator has overwritten that since.
TEST(StepRegressions, RecomputedFromWhatIsOverwritten) {
  Feeds feeds = sized(2, 2, 4);
  feeds.emplace_back("W", normal<double>({4, 4}, 3));
  feeds.emplace_back("b", normal<double>({4}, 4));
  const Lines step = {"z = FC(x, W, b) axis=2", "p = Softmax(z) axis=2", "z = Sigmoid(z)", "q = Mul(p, h_prev)",
                      "h = Add(q, z)"};
  for (const std::vector<std::string>& names : {std::vector<std::string>{"p"}, {"p", "q"}, {"z", "p"}, {"z"}}) {
    const Cell cell = {.step = step, .states = {kState}, .recompute = names};
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  }
}

TEST(StepRegressions, RecomputedDrawsFromWhatIsOverwritten) {
  const Cell cell = {
      .step = {"z = Mul(x, h_prev)", "z, mask = Dropout(z)", "p = Tanh(z)", "z = Sigmoid(z)", "h = Add(p, z)"},
      .states = {kState},
      .recompute = {"p"}};
  EXPECT_EQ(check_differences(cell, sized(3, 2, 4)), "");
}

// What is made again is written over another kept value; from the second run on, it went to the output itself.
TEST(StepRegressions, AShownBlobIsRecomputedInPlaceOfAnother) {
  Feeds feeds = sized(1, 1, 8);
  feeds.emplace_back("g0", normal<double>({1, 1, 4}, 3));
  feeds.emplace_back("c0", normal<double>({1, 1, 4}, 4));
  feeds.emplace_back("W", normal<double>({16, 8}, 5));
  feeds.emplace_back("b", normal<double>({16}, 6));
  feeds.emplace_back("k", normal<double>({1, 1, 16}, 7));
  const Cell cell = {.step = {"a = FC(h_prev, W, b) axis=2", "s = Sum(a, k)",
                              "g, c = LSTMUnit(g_prev, c_prev, s, timestep) sequence_lengths=0"},
                     .states = {{"h_prev", "h_prev", "h0"}, {"g_prev", "g", "g0"}, {"c_prev", "c", "c0"}},
                     .recompute = {"s"},
                     .outputs = {{"s", "Y"}}};
  const Feeds outside = outside_gradients(cell, feeds);
  EXPECT_EQ(compare_results(run_recurrent(cell, feeds, outside), run_unrolled(cell, feeds, outside), 1e-10), "");
}

TEST(StepRegressions, AnInputUnderAnotherNameIsNotWritten) {
  const Cell cell = {.step = {"a = Alias(x)", "a = Add(a, h_prev)", "h = Tanh(a)"}, .states = {kState}};
  const std::string text = error_of([&] { expanded_net(cell, sized(2, 2, 4)); });
  EXPECT_EQ(text.substr(0, text.find('\n')), "Add: it writes another name of the step net's input \"x\", a sequence");
  EXPECT_NE(text.find("let Copy make \"a\""), std::string::npos) << text;
  const Cell apart = {.step = {"a = Alias(x)", "a = Tanh(h_prev)", "h = Add(a, x)"}, .states = {kState}};
  EXPECT_EQ(error_of([&] { expanded_net(apart, sized(2, 2, 4)); }).substr(0, 4), "Tanh");
  Feeds feeds = sized(2, 2, 4);
  feeds.emplace_back("w", normal<double>({1, 2, 4}, 3));
  const Cell outside = {.step = {"a = Alias(w)", "a = Tanh(a)", "h = Add(h_prev, x)"},
                        .states = {kState, {"w_prev", "w", "h0"}}};
  const std::string says = error_of([&] { expanded_net(outside, feeds); });
  EXPECT_EQ(says.substr(0, says.find('\n')),
            "Tanh: it writes another name of the step net's input \"w\", a blob from outside");
  const Cell later = {.step = {"t = Negative(x)", "t = Sigmoid(t)", "a = Alias(w)", "a = Negative(a)",
                               "s = Add(t, h_prev)", "h = Mul(s, a)"},
                      .states = {kState}};
  const std::string late = error_of([&] { expanded_net(later, feeds); });
  EXPECT_EQ(late.substr(0, late.find('\n')),
            "Negative: it writes another name of the step net's input \"w\", a blob from outside");
  const Cell other = {.step = {"k = Alias(x)", "s = Sum(k, h_prev)", "v = Tanh(s)", "k = Alias(v)", "h = Tanh(k)"},
                      .states = {kState}};
  EXPECT_EQ(check_against_unrolled(other, sized(2, 2, 4)), "");
}

// Each state starts from the other's last row of the run before; the rows of both are taken in turn.
TEST(StepRegressions, StatesThatStartFromEachOther) {
  for (const int64_t steps : {1, 2, 3, 4}) {
    const Cell cell = {.step = {"a = Sum(x, a_prev)", "b = Mul(x, b_prev)"},
                       .states = {{"a_prev", "a", "a0", "", "a_last"}, {"b_prev", "b", "b0", "", "b_last"}}};
    const Tensor rows[] = {normal<double>({1, 2, 3}, 2), normal<double>({1, 2, 3}, 3)};
    const Feeds feeds = {{"X", normal<double>({steps, 2, 3}, 1)}, {"a0", rows[0]}, {"b0", rows[1]}};
    NetDef net = recurrent_net(cell, feeds);
    network_in(net).MutableExtension(recurrent)->set_forward_only(true);
    expand_recurrent(net);
    Workspace blobs, apart;
    for (const auto& [name, value] : feeds) blobs.create(name).tensor() = apart.create(name).tensor() = value.clone();
    RunContext context;
    Net shared(net, blobs), plain(net, apart);
    for (int run = 0; run < 4; ++run) {
      shared.run(context);
      plain.run(context);
      for (const char* name : {"a_last", "b_last"}) EXPECT_EQ(compare(blobs.fetch(name), apart.fetch(name), 0), "");
      for (const auto& [initial, last] : {std::pair("a0", "b_last"), std::pair("b0", "a_last")}) {
        blobs.create(initial).tensor() = blobs.fetch(last);
        apart.create(initial).tensor() = apart.fetch(last).clone();
      }
    }
  }
}

// A product adds to what a chain copies, though nothing reads the sum: it has to be written before.
TEST(StepRegressions, SumsThatNothingReads) {
  Feeds feeds = sized(2, 1, 8);
  feeds.emplace_back("W", normal<double>({8, 8}, 3));
  feeds.emplace_back("b", normal<double>({8}, 4));
  Cell cell = {.step = {"t = Tanh(h_prev)", "h = Add(t, x)", "p = FC(t, W, b) axis=2", "unread = Add(h_prev, p)"},
               .states = {kState}};
  for (const std::vector<std::string>& disabled : pass_choices()) {
    cell.disabled_passes = disabled;
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  }
}

// The second cell reads the first one's state a block later, and the blocks of a GPU are longer than those of a CPU.
TEST(StepRegressions, StacksWhoseStatesTakeRowsInTurn) {
  const Cell cell = {
      .step = {"s = Sum(x, a_prev)", "a = Tanh(s)", "w = FC(a, W, k) axis=2", "r = Sum(w, b_prev)", "b = Tanh(r)"},
      .states = {{"a_prev", "a", "a0", "", "a_last"}, {"b_prev", "b", "b0", "", "b_last"}}};
  for (const int64_t steps : {1, 9, 40}) {
    const Feeds feeds = {{"X", normal<double>({steps, 64, 2}, 1)},
                         {"a0", normal<double>({1, 64, 2}, 2)},
                         {"b0", normal<double>({1, 64, 2}, 3)},
                         {"W", normal<double>({2, 2}, 4)},
                         {"k", normal<double>({2}, 5)}};
    NetDef net = recurrent_net(cell, feeds);
    network_in(net).MutableExtension(recurrent)->set_forward_only(true);
    expand_recurrent(net);
    const CellResults made = run_with_gradients(net, feeds, {}), expected = run_unrolled(cell, feeds, {});
    for (const char* name : {"a_last", "b_last"})
      EXPECT_EQ(compare(made.outputs.at(name), expected.outputs.at(name), 1e-12), "") << steps << " " << name;
  }
}

// A Concat is left alone where the product's gradient would read a part that is overwritten after it.
TEST(StepRegressions, AConcatOfWhatIsOverwrittenLater) {
  Feeds feeds = sized(2, 2, 4);
  feeds.emplace_back("W", normal<double>({4, 8}, 3));
  feeds.emplace_back("b", normal<double>({4}, 4));
  for (const char* write : {"e = Tanh(e)", "e = Alias(o)"}) {
    const Cell cell = {.step = {"e = Negative(x)", "j, sizes = Concat(e, h_prev) axis=2", "z = FC(j, W, b) axis=2",
                                "o = Tanh(z)", write, "s = Add(z, e)", "h = Tanh(s)"},
                       .states = {kState}};
    EXPECT_EQ(check_against_unrolled(cell, feeds), "") << write;
  }
}

TEST(StepRegressions, ASumInPlaceOfAnyTerm) {
  const Cell cell = {.step = {"v = Negative(x)", "v = Sum(v, v)", "v = Sum(h_prev, v)", "h = Tanh(v)"},
                     .states = {kState}};
  EXPECT_EQ(check_against_unrolled(cell, sized(3, 2, 4)), "");
}

// A state under another name, which an operator in place writes, is written itself.
TEST(StepRegressions, AStateThatIsWrittenInPlaceUnderAnotherName) {
  const Cell cell = {.step = {"h = Sum(x, h_prev)", "a = Alias(h)", "a = Sigmoid(a)", "b = Alias(a)", "y = Mul(b, x)"},
                     .states = {kState},
                     .outputs = {{"y", "Y"}}};
  EXPECT_EQ(check_against_unrolled(cell, sized(3, 2, 4)), "");
}

// No gradient arrives at a state that no output depends on, so its operators may overwrite what that would read.
TEST(StepRegressions, AStateThatNoOutputDependsOn) {
  Feeds feeds = sized(3, 2, 4);
  feeds.emplace_back("g0", normal<double>({1, 2, 4}, 3));
  const Cell cell = {.step = {"h = Tanh(h_prev)", "g = Negative(h_prev)", "g = Mul(g, g_prev)"},
                     .states = {kState, {"g_prev", "g", "g0"}}};
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

// Where nothing depends on an input, all gradients are zero.
TEST(StepRegressions, OutputsThatDependOnNoInput) {
  for (const char* line : {"h = Sign(x)", "h = ZerosLike(x)"}) {
    const Cell cell = {.step = {line}, .states = {kState}};
    EXPECT_EQ(check_differences(cell, sized(2, 3, 4)), "") << line;
  }
}

}  // namespace
}  // namespace stepnet::testing::step_regressions_test
