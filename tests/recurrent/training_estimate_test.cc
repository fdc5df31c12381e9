// Estimated memory against real runs: every operator's live bytes before, in and behind it, forward alone and training.
#include "recurrent/training_estimate.h"

#include "core/io/text.h"
#include "core/parallel.h"
#include "recurrent/builder.h"
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

INSTANTIATE_TEST_SUITE_P(Draws, TrainingEstimateOf, ::testing::Range(uint64_t{0}, kDraws));

}  // namespace
}  // namespace stepnet::testing
