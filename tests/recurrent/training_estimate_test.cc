// Estimated memory against real runs: every operator's live bytes before, in and behind it, forward alone and training.
#include "recurrent/training_estimate.h"

#include "core/io/text.h"
#include "core/matmul.h"
#include "core/parallel.h"
#include "recurrent/builder.h"
#include "recurrent/training_session.h"
#include "tests/core/errors.h"
#include "tests/core/estimate_testing.h"
#include "tests/recurrent/estimate_nets.h"

namespace stepnet::testing {
namespace {

constexpr uint64_t kDraws = 5;

std::string compare_forward(const EstimateNet& n) {
  NetDef net = n.net;
  expand_recurrent(net);
  ForwardOptions options{.feeds = n.data};
  options.feeds.insert(n.parameters.begin(), n.parameters.end());
  return compare_with_real([&] { return forward_session(net, options); });
}

std::string compare_training(const EstimateNet& n, const std::string& optimizer) {
  TrainingEstimate training{.model = model_of(n.net, {}, n.loss)};
  training.optimizer.optimizer = optimizer;
  training.feeds = n.data;
  training.parameters = n.parameters;
  return compare_with_real([&] { return training_session(training); });
}

class TrainingEstimateOf : public ::testing::TestWithParam<uint64_t> {
 protected:
  void TearDown() override { set_threads(0); }
};

TEST_P(TrainingEstimateOf, NetsIsExact) {
  for (const EstimateNet& n : estimate_nets(GetParam())) {
    SCOPED_TRACE(n.name);
    EXPECT_EQ(compare_forward(n), "") << "forward";
    EXPECT_EQ(compare_training(n, "adam"), "") << "training";
  }
}

TEST_P(TrainingEstimateOf, CellsIsExact) {
  for (const EstimateNet& n : estimate_cells(GetParam())) {
    SCOPED_TRACE(n.name);
    set_threads(1 + static_cast<int>(GetParam() % 2));
    EXPECT_EQ(compare_forward(n), "") << "forward";
    EXPECT_EQ(compare_training(n, "sgd"), "") << "training";
  }
}

TEST_P(TrainingEstimateOf, ALanguageModelIsExact) {
  const NetDef net = load_net(fmt::format("{}/tools/examples/char_lstm.pbtxt", STEPNET_SOURCE_DIR));
  TrainingEstimate training{.model = read_model(net)};
  const auto draw = static_cast<int64_t>(GetParam());
  training.model.timesteps = 1 + 13 * draw;
  training.model.batch = 1 + 17 * draw % 40;
  for (const std::string& optimizer : optimizer_names()) {
    SCOPED_TRACE(optimizer);
    training.optimizer.optimizer = optimizer;
    EXPECT_EQ(compare_with_real([&] { return training_session(training); }), "");
  }
}

// Every kind of layer, in both directions, one on another: all passes of step programs, wavefronts, and lanes.
TEST_P(TrainingEstimateOf, LayersIsExact) {
  constexpr const char* kNet = R"(
    name: "layers" external_output: "Y"
    op {{ type: "{}" input: "X"{} {} output: "Y" output: "h_n" {}
         arg {{ name: "hidden" i: {} }} arg {{ name: "layers" i: {} }} arg {{ name: "bidirectional" i: {} }} }})";
  const int seed = static_cast<int>(GetParam());
  for (const std::string type : {"RNN", "GRU", "LSTM"})
    for (const int layers : {1, 3})
      for (const bool both : {false, true}) {
        const int64_t steps = 3 + 17 * seed, batch = 1 + 7 * seed, in = 5 + seed, hidden = 4 + 9 * seed;
        SCOPED_TRACE(fmt::format("{}, {} layers, {} directions", type, layers, both ? 2 : 1));
        EstimateNet net{type, {}, {{"X", TensorType::of(DType::float32, {steps, batch, in})}}, {}, "Y"};
        const int64_t gates = type == "RNN" ? 1 : type == "GRU" ? 3 : 4;
        std::string weights;
        for (int layer = 0; layer < layers; ++layer)
          for (int direction = 0; direction < (both ? 2 : 1); ++direction)
            for (const std::string name : {"w_ih", "w_hh", "b_ih", "b_hh"}) {
              const std::string blob = fmt::format("{}_{}_{}", name, layer, direction);
              const int64_t width = name == "w_hh" ? hidden : layer == 0 ? in : hidden * (both ? 2 : 1);
              net.parameters[blob] = name[0] == 'w' ? TensorType::of(DType::float32, {gates * hidden, width})
                                                    : TensorType::of(DType::float32, {gates * hidden});
              weights += fmt::format(" input: \"{}\"", blob);
            }
        net.net =
            parse_net_text(fmt::format(kNet, type, type == "LSTM" ? " input: \"\" input: \"\"" : " input: \"\"",
                                       weights, type == "LSTM" ? "output: \"c_n\"" : "", hidden, layers, int{both}));
        set_threads(1 + seed % 2);
        EXPECT_EQ(compare_forward(net), "") << "forward";
        EXPECT_EQ(compare_training(net, "momentum"), "") << "training";
      }
}

// What `stepnet train` itself takes, by the allocator, with all that is around the net.
TEST(TrainingEstimate, IsThePeakOfATrainingSession) {
  Model model = read_model(load_net(fmt::format("{}/tools/examples/char_lstm.pbtxt", STEPNET_SOURCE_DIR)));
  model.timesteps = 20;
  model.batch = 9;
  int64_t peak = 0, between = 0;
  {
    DryScope scope;
    TrainingEstimate training{.model = model};
    const auto session = training_session(training);
    const Estimate estimate = estimate_session(*session, scope);
    peak = estimate.peak;
    between = estimate.between;
  }
  forget_products();
  allocator(Device{}).reset_peak();
  const int64_t base = allocator(Device{}).counters().live;
  const std::string text(1000, 'x');
  TrainingSession session(model, {}, TextStreams(text, model.batch, model.timesteps, "text"), 1, 1000);
  session.step();
  session.step();
  EXPECT_EQ(allocator(Device{}).counters().peak - base, peak);
  EXPECT_EQ(allocator(Device{}).counters().live - base, between);
}

INSTANTIATE_TEST_SUITE_P(Draws, TrainingEstimateOf, ::testing::Range(uint64_t{0}, kDraws));

}  // namespace
}  // namespace stepnet::testing
