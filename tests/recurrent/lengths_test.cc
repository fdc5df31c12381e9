// Samples of different lengths: padding never influences a result or a gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "tests/recurrent/elman.h"

namespace stepnet::testing::lengths_test {
namespace {

Cell cell_of(bool reverse) {
  return {.step = kElmanWithOutput,
          .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
          .outputs = {{"y", "Y"}, {"h", "H"}},
          .reverse = reverse,
          .lengths = "lengths"};
}

Feeds feeds_of(int64_t steps, const std::vector<int32_t>& lengths) {
  const auto batch = static_cast<int64_t>(lengths.size());
  Feeds feeds = elman_feeds_with_output(steps, batch);
  feeds.emplace_back("lengths", Tensor::of<int32_t>({batch}, lengths));
  return feeds;
}

// Results and gradients with NaN in the padding against the unrolled net with zeros there.
std::string check_with_bad_padding(const Cell& cell, const Feeds& feeds) {
  const Feeds outside = outside_gradients(cell, feeds);
  return compare_results(run_recurrent(cell, with_bad_padding(cell, feeds), outside),
                         run_unrolled(cell, feeds, outside), 1e-10);
}

TEST(Lengths, AreTheNetUnrolled) {
  for (const bool reverse : {false, true}) {
    const Cell cell = cell_of(reverse);
    for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{3, 5}, {5, 5}, {0, 2, 5, 1}, {0, 0}, {4}, {}}) {
      SCOPED_TRACE(fmt::format("{} [{}]", reverse, fmt::join(lengths, ", ")));
      EXPECT_EQ(check_against_unrolled(cell, feeds_of(5, lengths)), "");
      EXPECT_EQ(check_with_bad_padding(cell, feeds_of(5, lengths)), "");
    }
    EXPECT_EQ(check_against_unrolled(cell, feeds_of(1, {1, 0})), "");
    EXPECT_EQ(check_against_unrolled(cell, feeds_of(0, {0, 0})), "");
    EXPECT_EQ(check_differences(cell, feeds_of(3, {2, 3, 0})), "");
  }
}

// Each sample alone, without padding and without lengths, has the same results and gradients.
TEST(Lengths, SamplesAloneAreTheSame) {
  for (const bool reverse : {false, true}) {
    const Cell cell = cell_of(reverse);
    const Feeds feeds = feeds_of(4, {3, 1, 4});
    const CellResults together = run_recurrent(cell, with_bad_padding(cell, feeds), {});
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t length = feeds.back().second.data<int32_t>()[b];
      Cell alone = cell;
      alone.lengths = "";
      Feeds one = feeds;
      one.pop_back();
      one[0].second = Tensor::empty(DType::float64, {length, 1, 2});
      for (int64_t t = 0; t < length; ++t) one[0].second.row(t).copy_from(feeds[0].second.row(t).rows(b, 1));
      one[1].second = feeds[1].second.rows(b, 1).clone();
      const CellResults expected = run_recurrent(alone, one, {});
      EXPECT_EQ(compare(together.outputs.at("h_last").row(0).rows(b, 1), expected.outputs.at("h_last").row(0), 1e-14),
                "");
      for (int64_t t = 0; t < 4; ++t) {
        const Tensor y = together.outputs.at("Y").row(t).rows(b, 1);
        const Tensor want = t < length ? expected.outputs.at("Y").row(t) : Tensor::zeros(DType::float64, {1, 4});
        EXPECT_EQ(compare(y, want, 1e-14), "") << t;
      }
    }
  }
}

TEST(Lengths, GradientsOfPaddedRowsAreZero) {
  for (const bool reverse : {false, true}) {
    const Cell cell = cell_of(reverse);
    const Feeds feeds = with_bad_padding(cell, feeds_of(4, {2, 4, 0}));
    Feeds outside = outside_gradients(cell, feeds_of(4, {2, 4, 0}));
    for (auto& [name, g] : outside)  // what arrives for padded rows of an output that is no state does not count
      if (name == "Y") std::fill_n(g.data<double>() + (3 * 3 + 0) * 4, 4, std::numeric_limits<double>::quiet_NaN());
    const CellResults results = run_recurrent(cell, feeds, outside);
    for (const auto& [name, g] : results.gradients)
      for (int64_t i = 0; i < g.size(); ++i) EXPECT_TRUE(std::isfinite(g.data<double>()[i])) << name;
    const Tensor& dx = results.gradients.at("X");
    for (int64_t t = 2; t < 4; ++t) EXPECT_EQ(compare(dx.row(t).row(0), Tensor::zeros(DType::float64, {2}), 0), "");
    for (int64_t t = 0; t < 4; ++t) EXPECT_EQ(compare(dx.row(t).row(2), Tensor::zeros(DType::float64, {2}), 0), "");
  }
}

TEST(Lengths, OfTokens) {
  const Cell cell = {
      .step = {"e = Gather(E, i) dense_gradient=1", "s = Sum(e, x)", "p = Sum(s, h_prev)", "h = Tanh(p)"},
      .states = {{"h_prev", "h", "", "h_all", "h_last", {3}}},
      .sequences = {{"X", "x"}, {"tokens", "i"}},
      .lengths = "lengths"};
  const Feeds feeds = {{"X", normal<double>({4, 2, 3})},
                       {"tokens", integers<int32_t>({4, 2}, 0, 4)},
                       {"E", normal<double>({5, 3}, 2)},
                       {"lengths", Tensor::of<int32_t>({2}, {4, 1})}};
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
  EXPECT_EQ(check_with_bad_padding(cell, feeds), "");
}

TEST(Lengths, OfStatesOfAnyRankInFloat32) {
  const Cell cell = {.step = {"p = Mul(h_prev, x)", "h = Tanh(p)"},
                     .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
                     .outputs = {{"p", "P"}, {"h_prev", "before"}, {"x", "again"}},
                     .lengths = "lengths"};
  const Feeds feeds = {{"X", normal<float>({4, 2, 3, 2})},
                       {"h0", normal<float>({1, 2, 3, 2}, 2)},
                       {"lengths", Tensor::of<int32_t>({2}, {3, 1})}};
  EXPECT_EQ(check_against_unrolled(cell, feeds, 1e-6), "");
}

// With a batch of 40 blocks have 4 timesteps; the sequence's own product is hoisted behind its mask.
TEST(Lengths, PassesLeaveTheResult) {
  std::vector<int32_t> lengths;
  for (int32_t b = 0; b < 40; ++b) lengths.push_back(b % 10);
  for (const bool reverse : {false, true}) {
    Cell cell = cell_of(reverse);
    const Feeds feeds = feeds_of(9, lengths);
    const Feeds outside = outside_gradients(cell, feeds);
    const CellResults expected = run_unrolled(cell, feeds, outside);
    for (const std::vector<std::string>& disabled : {std::vector<std::string>{}, {"hoist"}, {"hoist", "defer"}}) {
      cell.disabled_passes = disabled;
      EXPECT_EQ(compare_results(run_recurrent(cell, with_bad_padding(cell, feeds), outside), expected, 1e-10), "");
    }
  }
}

TEST(Lengths, OfAStepNetThatListsItsInputs) {
  const Cell cell = cell_of(false);
  const Feeds feeds = feeds_of(3, {2, 3});
  NetDef net = recurrent_net(cell, feeds);
  NetDef& step = *net.mutable_op(0)->MutableExtension(recurrent)->mutable_step_net();
  for (const char* name : {"x", "h_prev", "W", "U", "V", "b", "d", "e"}) step.add_external_input(name);
  expand_recurrent(net);
  const Feeds outside = outside_gradients(cell, feeds);
  EXPECT_EQ(compare_results(run_with_gradients(net, feeds, outside), run_unrolled(cell, feeds, outside), 1e-10), "");
}

std::string run_error(const Tensor& lengths) {
  Feeds feeds = feeds_of(4, {1, 2});
  feeds[8].second = lengths;
  const std::string text = error_of([&] { run_in_turn(expanded_net(cell_of(false), feeds), {{feeds, {}}}); });
  return text.substr(0, text.find('\n'));
}

TEST(Lengths, MustBeOneForEachSampleAndFitTheSequence) {
  const std::string name = "RecurrentNetwork: ";
  EXPECT_EQ(run_error(Tensor::of<int32_t>({2}, {4, 5})),
            name + "the length of sample 1 in \"lengths\" is 5; it must be from 0 to the 4 timesteps of the sequence");
  EXPECT_EQ(run_error(Tensor::of<int32_t>({2}, {-1, 5})),
            name + "the length of sample 0 in \"lengths\" is -1; it must be from 0 to the 4 timesteps of the sequence");
  EXPECT_EQ(run_error(Tensor::of<int32_t>({3}, {1, 2, 3})),
            name + "the lengths \"lengths\" must be int32[2], one for each sample, but are int32[3]");
  EXPECT_EQ(run_error(Tensor::of<int64_t>({2}, {1, 2})),
            name + "the lengths \"lengths\" must be int32[2], one for each sample, but are int64[2]");
}

// Vectors of one sample are often given as [T, I]: then it is not the lengths that are wrong.
TEST(Lengths, OfASequenceWithoutABatchBlameTheSequence) {
  Feeds feeds = feeds_of(4, {1, 2});
  feeds[0].second = normal<double>({4, 3});
  const std::string text = error_of([&] { run_in_turn(expanded_net(cell_of(false), feeds), {{feeds, {}}}); });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "RecurrentNetwork: the sequence \"X\" is [4, 3], 4 timesteps of 3 samples, but the lengths \"lengths\" are "
            "those of 2");
  EXPECT_TRUE(text.ends_with("\n  fix vectors over time are [T, B, I]: those of one sample [4, 1, 3]")) << text;
}

}  // namespace
}  // namespace stepnet::testing::lengths_test
