// Several sequences, of any rank and type.
#include <gtest/gtest.h>

#include "stepnet/gradients.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::sequences_test {
namespace {

const Cell kTwo = {.step = {"s = Mul(x, y)", "p = Sum(s, h_prev)", "h = Tanh(p)"},
                   .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
                   .sequences = {{"X", "x"}, {"Y", "y"}}};

Feeds two_feeds(int64_t steps, int64_t batch, const Shape& sample) {
  const Shape sequence = sample.prepend(batch).prepend(steps);
  return {{"X", normal<double>(sequence)},
          {"Y", normal<double>(sequence, 2)},
          {"h0", normal<double>(sample.prepend(batch).prepend(1), 3)}};
}

TEST(Sequences, TwoAreTheNetUnrolled) {
  for (const Shape& sample : {Shape{3}, Shape{2, 3}, Shape{2, 1, 2}})
    for (const auto& [steps, batch] : {std::pair{4, 2}, {1, 1}, {0, 2}, {3, 0}}) {
      SCOPED_TRACE(fmt::format("T {}, B {}, {}", steps, batch, sample.str()));
      EXPECT_EQ(check_against_unrolled(kTwo, two_feeds(steps, batch, sample)), "");
    }
  EXPECT_EQ(check_differences(kTwo, two_feeds(3, 2, {2})), "");
}

TEST(Sequences, WithoutDimensionsBehindTheBatch) {
  const Cell cell = {.step = {"m = Mul(h_prev, w) broadcast=1 axis=0", "h = Tanh(m)"},
                     .states = {{"h_prev", "h", "h0", "h_all", ""}},
                     .sequences = {{"X", "x"}, {"weights", "w"}}};
  const Feeds feeds = {
      {"X", normal<double>({4, 2})}, {"weights", normal<double>({4, 2}, 2)}, {"h0", normal<double>({2, 3}, 3)}};
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  EXPECT_EQ(check_differences(cell, feeds), "");
}

// Token indices have no gradient; what is looked up with them has.
TEST(Sequences, OfIntegers) {
  for (const bool first : {false, true}) {
    Cell cell = {.step = {"e = Gather(E, i) dense_gradient=1", "s = Sum(e, x)", "p = Sum(s, h_prev)", "h = Tanh(p)"},
                 .states = {{"h_prev", "h", "h0", "h_all", ""}},
                 .sequences = {{"X", "x"}, {"tokens", "i"}}};
    if (first) std::swap(cell.sequences[0], cell.sequences[1]);
    const Feeds feeds = {{"X", normal<double>({4, 2, 3})},
                         {"tokens", integers<int32_t>({4, 2}, 0, 4)},
                         {"E", normal<double>({5, 3}, 2)},
                         {"h0", normal<double>({2, 3}, 3)}};
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
    EXPECT_EQ(check_differences(cell, feeds), "");
  }
}

TEST(Sequences, OfFloat32) {
  Feeds feeds = two_feeds(4, 2, {3});
  for (size_t i = 0; i < feeds.size(); ++i) feeds[i].second = normal<float>(feeds[i].second.shape(), i + 1);
  EXPECT_EQ(check_against_unrolled(kTwo, feeds, 1e-6), "");
}

// One that is a parameter too: its rows are read by timestep, and all of it in every timestep.
TEST(Sequences, MayBeReadAsAWhole) {
  const Cell cell = {.step = {"all = SumElements(Y)", "s = Mul(x, all) broadcast=1", "p = Sum(s, h_prev, y)"},
                     .states = {{"h_prev", "p", "h0", "h_all", ""}},
                     .sequences = {{"X", "x"}, {"Y", "y"}}};
  EXPECT_EQ(check_against_unrolled(cell, two_feeds(3, 2, {2})), "");
  EXPECT_EQ(check_differences(cell, two_feeds(3, 2, {2})), "");
}

// Gradients that nobody wants are not computed, and the others do not change.
TEST(Sequences, OnlyTheGradientsThatAreWanted) {
  const Feeds feeds = two_feeds(3, 2, {2});
  const CellResults all = run_recurrent(kTwo, feeds, outside_gradients(kTwo, feeds));
  for (const std::string wanted : {"X", "Y"}) {
    NetDef net = expanded_net(kTwo, feeds);
    net.add_external_input("g");
    const GradientResult result =
        add_gradient_operators(net, {.targets = {{"h_all", "g"}}, .wanted = {wanted}, .stop = {}});
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
    const Feeds outside = outside_gradients(kTwo, feeds);
    workspace.tensor("g") = outside[0].second;
    RunContext run;
    run_net_once(net, workspace, run);
    const Feeds only_all = {outside[0]};
    const CellResults expected = run_unrolled(kTwo, feeds, only_all);
    EXPECT_EQ(compare(workspace.fetch(result.gradients.at(wanted).dense), expected.gradients.at(wanted), 1e-12), "");
    EXPECT_EQ(workspace.find(wanted == "X" ? "Y_grad" : "X_grad"), nullptr);
  }
}

std::string run_error(Feeds feeds) {
  const std::string text = error_of([&] { run_in_turn(expanded_net(kTwo, feeds), {{feeds, {}}}); });
  return text.substr(0, text.find('\n'));
}

TEST(Sequences, MustHaveOneLengthAndOneBatch) {
  Feeds feeds = two_feeds(4, 2, {3});
  for (const Shape& shape : {Shape{3, 2, 3}, Shape{4, 1, 3}}) {
    feeds[1].second = normal<double>(shape);
    EXPECT_EQ(run_error(feeds), "RecurrentNetwork: the sequence \"Y\" is " + shape.str() +
                                    ", but \"X\" has 4 timesteps and a batch of 2");
  }
  feeds[1].second = normal<double>({4});
  EXPECT_EQ(run_error(feeds), "RecurrentNetwork: the sequence \"Y\" must be [T, B, ...], not [4]");
}

}  // namespace
}  // namespace stepnet::testing::sequences_test
