// Training whose loss works in blocks of rows, beside the same training of a model that somebody reads the scores of.
#include <gtest/gtest.h>

#include "recurrent/train/evaluator.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/stepper.h"
#include "recurrent/train/training_net.h"
#include "stepnet/matmul.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing::block_loss_test {
namespace {

constexpr int kClasses = 9001;

Model model_with(bool blocks) {
  NetDef net = tiny_net(kClasses);
  if (!blocks) *net.add_op() = make_op("SumElements", {"p"}, {"sum"});
  Model model = read_model(net);
  model.timesteps = 16;
  model.batch = 32;
  return model;
}

// Of the 32 symbols that the model has.
std::string symbols() {
  std::string text = tiny_text(6000);
  for (char& c : text) c = static_cast<char>(c % 32);
  return text;
}

struct Losses {
  std::vector<double> steps;
  double held_out = 0;
};

Losses losses(bool blocks, const OptimizerOptions& optimizer) {
  const Model model = model_with(blocks);
  const std::string text = symbols();
  TrainingSession session(model, optimizer, TextStreams(text, model.batch, model.timesteps, "text"), 1, 1000);
  Losses all;
  for (int i = 0; i < 4; ++i) all.steps.push_back(session.step());
  Evaluator evaluator(model, session.parameters(), session.dtype(), text.substr(0, 1300), model.batch, model.timesteps,
                      "text");
  all.held_out = evaluator.loss();
  return all;
}

TEST(BlockLoss, TrainsAsWholeScoresDo) {
  OptimizerOptions adam, clipped, accumulated, scaled;
  clipped.optimizer = "momentum";
  clipped.clip = 0.01;
  accumulated.accumulate = 2;
  scaled.loss_scale = 1024;
  for (const OptimizerOptions& o : {adam, clipped, accumulated, scaled}) {
    const Losses is = losses(true, o), should = losses(false, o);
    for (size_t i = 0; i < is.steps.size(); ++i) EXPECT_NEAR(is.steps[i], should.steps[i], 2e-5) << o.optimizer << i;
    EXPECT_NEAR(is.held_out, should.held_out, 2e-5) << o.optimizer;
  }
}

TEST(BlockLoss, IsWhatNetsWithManyScoresHave) {
  const auto count = [](const Model& model) {
    const TextStreams text(symbols(), model.batch, model.timesteps, "text");
    TrainingSession session(model, {}, text, 1, 1000);
    const NetDef net = evaluation_net(model, session.parameters());
    const NetDef training =
        build_training_net(model, parameter_names(model, session.parameters()), session.parameters(), {}, 10).net;
    const auto is_blocks = [](const OperatorDef& op) { return op.type() == "FCSoftmaxWithLoss"; };
    return std::pair(std::ranges::count_if(net.op(), is_blocks), std::ranges::count_if(training.op(), is_blocks));
  };
  EXPECT_EQ(count(model_with(true)), std::pair(1L, 1L));
  EXPECT_EQ(count(model_with(false)), std::pair(1L, 0L));  // validation has no need of that sum
  Model small = model_with(true);
  small.batch = 8;
  EXPECT_EQ(count(small), std::pair(0L, 0L));
}

// What of a deep net runs again within a budget is not held up by gradients that the forward part leaves.
TEST(BlockLoss, LeavesTheRestOfTheNetToRunAgain) {
  constexpr int kLayers = 30;
  NetDef net = tiny_net(1100);
  OperatorDef scores = net.op(2), loss = net.op(3);
  net.mutable_op()->DeleteSubrange(2, 2);
  for (int i = 0; i < kLayers; ++i) {
    *net.add_op() = make_op("Gelu", {i == 0 ? "h_all" : fmt::format("z{}", i - 1)}, {fmt::format("g{}", i)});
    *net.add_op() = make_op("Scale", {fmt::format("g{}", i)}, {fmt::format("z{}", i)}, {make_arg("scale", 2.0F)});
  }
  scores.set_input(0, fmt::format("z{}", kLayers - 1));
  *net.add_op() = scores;
  *net.add_op() = loss;
  TrainingEstimate training{.model = read_model(net)};
  training.model.timesteps = training.model.batch = 64;
  const int64_t whole = training_peak(training);
  const std::string text = error_text([&] { fit_training(training, 1); }), before = "takes at least ";
  ASSERT_NE(text.find(before), std::string::npos) << text;
  const int64_t least = std::stoll(text.substr(text.find(before) + before.size()));
  EXPECT_LT(least, whole - whole / 4);
  std::vector<double> losses[2];
  for (const bool fitted : {false, true}) {
    const Model model = fitted ? fit_training(training, least).model : training.model;
    forget_products();
    allocator(Device{}).reset_peak();
    const int64_t live = allocator(Device{}).counters().live;
    TrainingSession session(model, {}, TextStreams(std::string(9000, 'x' % 32), 64, 64, "text"), 1, 1000);
    for (int i = 0; i < 4; ++i) losses[int{fitted}].push_back(session.step());
    EXPECT_LE(allocator(Device{}).counters().peak - live, fitted ? least : whole);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace stepnet::testing::block_loss_test
