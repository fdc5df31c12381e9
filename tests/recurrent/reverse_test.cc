// Networks that run from the last timestep to the first.
#include <gtest/gtest.h>

#include "stepnet/gradients.h"
#include "tests/recurrent/elman.h"

namespace stepnet::testing::reverse_test {
namespace {

Cell reversed(const Lines& step, const std::vector<CellState>& states) {
  return {.step = step, .states = states, .reverse = true};
}

TEST(Reverse, IsTheNetUnrolled) {
  const Cell cell = reversed(kElman, {{"h_prev", "h", "h0", "h_all", "h_last"}});
  for (const auto& [steps, batch] : {std::pair{5, 2}, {1, 1}, {0, 2}, {3, 0}, {0, 0}})
    for (const Shape& initial : {Shape{3}, Shape{batch, 3}, Shape{1, batch, 3}}) {
      SCOPED_TRACE(fmt::format("T {}, initial {}", steps, initial.str()));
      EXPECT_EQ(check_against_unrolled(cell, elman_feeds(steps, batch, initial)), "");
    }
  EXPECT_EQ(check_differences(cell, elman_feeds(3, 2, {2, 3})), "");
}

TEST(Reverse, CellsWhoseGradientsHaveSeveralDestinations) {
  const CellState h = {"h_prev", "h", "h0", "h_all", "h_last"}, c = {"c_prev", "c", "c0", "c_all", "c_last"};
  const Feeds feeds = {
      {"X", normal<double>({5, 2, 3})}, {"h0", normal<double>({2, 3}, 2)}, {"c0", normal<double>({2, 3}, 3)}};
  const Feeds one = {feeds[0], feeds[1]};
  EXPECT_EQ(check_against_unrolled(reversed({"h = Mul(h_prev, x)"}, {h}), one), "");
  EXPECT_EQ(check_against_unrolled(reversed({"h = Sum(h_prev, x)"}, {h}), one), "");
  EXPECT_EQ(check_against_unrolled(reversed({"s = Sum(h_prev, x)", "h = Tanh(s)"}, {h}), one), "");
  EXPECT_EQ(check_against_unrolled(reversed({"h = Tanh(x)"}, {h}), one), "");
  EXPECT_EQ(check_against_unrolled(reversed({"h = Tanh(c_prev)", "c = Mul(h_prev, x)"}, {h, c}), feeds), "");
}

// Gradients from some views alone.
TEST(Reverse, GradientsOfOneOutput) {
  Cell cell = reversed(kElman, {{"h_prev", "h", "h0", "h_all", "h_last"}});
  for (const char* some : {"h_all", "h_last"}) {
    cell.differentiated = {some};
    EXPECT_EQ(check_against_unrolled(cell, elman_feeds(4, 2, {2, 3})), "");
  }
}

TEST(Reverse, WithZeroStatesSequencesAndOutputs) {
  const Cell cell = {.step = {"s = Mul(x, z)", "p = Sum(s, h_prev)", "h = Tanh(p)", "y = Mul(h, timescale) broadcast=1",
                              "timescale = Cast(timestep) to=13"},
                     .states = {{"h_prev", "h", "", "h_all", "h_last", {3}}},
                     .sequences = {{"X", "x"}, {"Z", "z"}},
                     .outputs = {{"y", "Y"}, {"s", "S"}},
                     .reverse = true};
  Cell ordered = cell;
  std::swap(ordered.step[3], ordered.step[4]);
  for (const int64_t steps : {5, 1, 0}) {
    const Feeds feeds = {{"X", normal<double>({steps, 2, 3})}, {"Z", normal<double>({steps, 2, 3}, 2)}};
    EXPECT_EQ(check_against_unrolled(ordered, feeds), "");
  }
}

// Blocks of timesteps have their border at multiples of K in either direction: with a batch of 50 K is 3.
TEST(Reverse, PassesLeaveTheResult) {
  Cell cell = reversed(kElman, {{"h_prev", "h", "h0", "h_all", "h_last"}});
  cell.outputs = {{"s", "S"}};
  for (const int64_t steps : {1, 3, 8}) {
    const Feeds feeds = elman_feeds(steps, 50, {50, 3});
    const Feeds outside = outside_gradients(cell, feeds);
    const CellResults expected = run_unrolled(cell, feeds, outside);
    for (const std::vector<std::string>& disabled :
         {std::vector<std::string>{}, {"hoist"}, {"defer"}, {"hoist", "defer"}}) {
      cell.disabled_passes = disabled;
      EXPECT_EQ(compare_results(run_recurrent(cell, feeds, outside), expected, 1e-10), "");
    }
    cell.disabled_passes = {};
  }
}

TEST(Reverse, StartsFromOneRow) {
  const Cell cell = reversed(kElman, {{"h_prev", "h", "h0", "h_all", "h_last"}});
  const Feeds feeds = elman_feeds(3, 2, {2, 2, 3});
  const std::string text = error_of([&] { run_in_turn(expanded_net(cell, feeds), {{feeds, {}}}); });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "RecurrentNetwork: the initial state \"h0\" is double[2, 2, 3], but a network that runs in reverse starts "
            "from one row");
}

// The sequence turned round and run forward gives the same states, turned round.
TEST(Reverse, IsTheSequenceTurnedRound) {
  Cell cell = reversed(kElman, {{"h_prev", "h", "h0", "h_all", "h_last"}});
  Feeds feeds = elman_feeds(4, 2, {2, 3});
  const CellResults back = run_recurrent(cell, feeds, {});
  cell.reverse = false;
  const Tensor x = feeds[0].second.clone();
  feeds[0].second = x.clone();
  for (int64_t t = 0; t < 4; ++t) feeds[0].second.rows(t, 1).copy_from(x.rows(3 - t, 1));
  const CellResults forward = run_recurrent(cell, feeds, {});
  EXPECT_EQ(compare(back.outputs.at("h_last"), forward.outputs.at("h_last"), 0), "");
  for (int64_t t = 0; t < 4; ++t)
    EXPECT_EQ(compare(back.outputs.at("h_all").row(t), forward.outputs.at("h_all").row(3 - t), 0), "");
}

}  // namespace
}  // namespace stepnet::testing::reverse_test
