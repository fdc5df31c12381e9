// Layers that run in segments of timesteps: the values of the whole, and the memory of the segments at work.
#include "recurrent/layers/tape_segments.h"

#include "stepnet/offload.h"
#include "tests/core/temp_folder.h"
#include "tests/recurrent/tape_layers.h"

namespace stepnet::autograd::testing::tape_segments_test {
namespace {

struct Case {
  std::string type;
  int64_t steps;
  bool lengths = false, initial = true;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.type << (c.lengths ? " with lengths" : "") << (c.initial ? "" : " from zeros") << ", segments of "
       << c.steps;
}

void expect_near(const Numbers& x, const Numbers& y, const std::string& what) {
  ASSERT_EQ(x.size(), y.size()) << what;
  for (size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], y[k], 1e-13) << what;
}

class LayerSegments : public ::testing::TestWithParam<Case> {};

TEST_P(LayerSegments, AreTheWhole) {
  const Case& c = GetParam();
  Layer l = layer(c.type, 7);
  if (!c.initial)
    for (std::string& name : l.inputs)
      if (name == "h0" || name == "c0") name.clear();
  if (c.lengths) {
    l.inputs.emplace_back("lengths");
    l.feeds["lengths"] = Tensor::of<int32_t>({2}, {2, 7});
  }
  const std::vector<Variable> a = leaves(l.feeds, l.inputs), b = leaves(l.feeds, l.inputs);
  const std::vector<Variable> whole = run(c.type, a, l.args);
  const std::vector<Variable> parts = run_in_segments(c.type, b, l.args, {.steps = c.steps});
  ASSERT_EQ(parts.size(), whole.size());
  Gradients given;
  for (size_t k = 0; k < whole.size(); ++k) {
    // The sequence's product is made for fewer rows at once, which may round otherwise.
    expect_near(values_of(whole[k]), values_of(parts[k]), l.outputs[k]);
    given.emplace_back(Variable(numbers(whole[k].shape(), 1 + static_cast<double>(k))));
  }
  backward(whole, given);
  backward(parts, given);
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].defined() || !a[i].requires_grad()) continue;
    expect_near(grad_of(a[i]), grad_of(b[i]), l.inputs[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LayerSegments,
                         ::testing::Values(Case{"LSTM", 1}, Case{"LSTM", 3}, Case{"LSTM", 7}, Case{"LSTM", 100},
                                           Case{"GRU", 2}, Case{"RNN", 4}, Case{"LSTM", 3, true}, Case{"GRU", 2, true},
                                           Case{"LSTM", 2, false, false}));

// Forward and backward of an LSTM of so many timesteps in segments of 50; the most bytes at once beside the sequence.
int64_t peak_of(int64_t steps, bool hooks) {
  const Layer l = layer("LSTM", steps);
  std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  inputs[0].set_requires_grad(false);
  const SegmentOptions options{.steps = 50, .sequence_wanted = false};
  const int64_t before = live_bytes();
  allocator(Device{}).reset_peak();
  Variable loss;
  if (hooks) {
    const SavedValueHooksScope scope(stored_elsewhere());
    loss = sum_of(run_in_segments("LSTM", inputs, l.args, options)[1]);
  } else {
    loss = sum_of(run_in_segments("LSTM", inputs, l.args, options)[1]);
  }
  backward(loss);
  return allocator(Device{}).counters().peak - before;
}

TEST(LayerSegments, HooksHoldThePeakToTwoSegments) {
  const int64_t one = peak_of(50, false);
  EXPECT_GT(peak_of(1000, false), 10 * one);
  EXPECT_LT(peak_of(1000, true), 2 * one);
}

// Files hold what a segment keeps: two of them are in memory, and what one reads as it runs.
TEST(LayerSegments, OffloadHoldsThePeakToTwoSegments) {
  const int64_t one = peak_of(50, false);
  const stepnet::testing::TempFolder folder;
  OffloadOptions options;
  options.folder = folder.path();
  options.at_least = 1024;
  const Layer l = layer("LSTM", 1000);
  std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  inputs[0].set_requires_grad(false);
  const auto run_it = [&] { return sum_of(run_in_segments("LSTM", inputs, l.args, {50, false})[1]); };
  const Gradients expected = grad({run_it()}, {inputs[3]});
  const int64_t before = live_bytes();
  allocator(Device{}).reset_peak();
  Variable loss;
  {
    const OffloadScope scope(options);
    loss = run_it();
    EXPECT_GT(scope.counters().written, 20);
  }
  const Gradients g = grad({loss}, {inputs[3]});
  EXPECT_EQ(values_of(g[0].dense), values_of(expected[0].dense));
  EXPECT_LT(allocator(Device{}).counters().peak - before, 3 * one);
}

// A layer that is called as a whole runs by segments of its own where hooks take what it keeps.
TEST(LayerSegments, OffloadHoldsThePeakOfAWholeLayerToTwoSegments) {
  const Layer l = layer("LSTM", 1000);
  std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  inputs[0].set_requires_grad(false);
  const int64_t row = 2 * 4 * 8;  // B = 2, H = 4, in float64
  const stepnet::testing::TempFolder folder;
  const auto peak = [&](bool offloads) {
    const int64_t before = live_bytes();
    allocator(Device{}).reset_peak();
    Variable loss;
    {
      std::optional<OffloadScope> scope;
      if (offloads) scope.emplace(OffloadOptions{.folder = folder.path(), .at_least = 1024});
      loss = sum_of(run("LSTM", inputs, l.args)[1]);
    }
    grad({loss}, {inputs[3]});
    return allocator(Device{}).counters().peak - before;
  };
  const int64_t whole = peak(false), offloaded = peak(true);
  const int64_t kept = 1000 * 5 * row;  // gates and c
  EXPECT_GT(whole, kept);
  // Two segments of 256 timesteps, and what the backward step net adds up over blocks of as many rows.
  EXPECT_LE(offloaded, whole - kept + 2 * 257 * 5 * row + 256 * 4 * row);
}

TEST(LayerSegments, Errors) {
  const Layer l = layer("LSTM");
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  std::vector<Argument> both = l.args;
  both.push_back(make_arg("bidirectional", 1));
  expect_error([&] { run_in_segments("LSTM", inputs, both, {.steps = 2}); },
               {"LSTM in both directions cannot run in segments", "tape_segments_test.cc:"});
  expect_error([&] { run_in_segments("LSTM", inputs, l.args, {}); }, {"at least one timestep, not 0"});
  expect_error([&] { run_in_segments("FC", inputs, l.args, {.steps = 2}); }, {"FC is not a layer"});
  expect_error([&] { run_in_segments("LSTM", {inputs[0]}, l.args, {.steps = 2}); }, {"6 more inputs, and gets 1"});
}

}  // namespace
}  // namespace stepnet::autograd::testing::tape_segments_test
