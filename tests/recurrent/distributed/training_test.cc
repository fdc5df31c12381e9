// Ranks that train together, each on its part of every batch, against one process with all of it.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/core/errors.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/distributed/rank_sessions.h"

namespace stepnet::testing::training_test {
namespace {

void expect_trains_alike(const OptimizerOptions& optimizer, const Model& model = model_of_doubles(),
                         double tolerance = 1e-12) {
  const auto alone = session_of(model, optimizer, nullptr), together = session_of(model, optimizer, all_ranks());
  double first = 0, loss = 0;
  for (int64_t i = 0; i < kSteps; ++i) {
    loss = alone->step();
    if (i == 0) first = loss;
    ASSERT_NEAR(together->step(), loss, tolerance) << i;
  }
  EXPECT_LT(loss, 0.9 * first);
  expect_alike(*alone, *together, tolerance);
}

TEST(TrainingOfRanks, IsThatOfOneProcess) {
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  expect_trains_alike(optimizer);
}

TEST(TrainingOfRanks, ClipsTheNormOfTheSum) {
  OptimizerOptions optimizer;
  optimizer.optimizer = "momentum";
  optimizer.lr = 0.5;
  optimizer.clip = 0.3;
  expect_trains_alike(optimizer);
}

TEST(TrainingOfRanks, AddsGradientsOfSeveralBatchesUp) {
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  optimizer.accumulate = 3;
  optimizer.average = 0.9;
  expect_trains_alike(optimizer);
}

TEST(TrainingOfRanks, ScalesTheLossOnAllAlike) {
  OptimizerOptions optimizer;
  optimizer.optimizer = "sgd";
  optimizer.lr = 0.5;
  optimizer.loss_scale = 1024;
  Model model = read_model(tiny_net());
  model.batch = 12;
  expect_trains_alike(optimizer, model, 1e-3);
}

TEST(TrainingOfRanks, HasTheSameBitsInEachRun) {
  const Model model = model_of_doubles();
  OptimizerOptions optimizer;
  const auto one = session_of(model, optimizer, all_ranks());
  for (int i = 0; i < 20; ++i) one->step();
  const auto first = one->save();
  const auto two = session_of(model, optimizer, all_ranks());
  for (int i = 0; i < 20; ++i) two->step();
  for (const auto& [name, value] : two->save())
    EXPECT_EQ(std::memcmp(value.raw(), first.at(name).raw(), value.bytes()), 0) << name;
}

TEST(TrainingOfRanks, GoesOnInOneProcessAndBack) {
  const Model model = model_of_doubles();
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  const auto whole = session_of(model, optimizer, nullptr);
  for (int i = 0; i < 30; ++i) whole->step();
  const auto first = session_of(model, optimizer, all_ranks());
  for (int i = 0; i < 10; ++i) first->step();
  const auto second = session_of(model, optimizer, nullptr);
  second->restore(first->save());
  for (int i = 0; i < 10; ++i) second->step();
  const auto third = session_of(model, optimizer, all_ranks());
  third->restore(second->save());
  for (int i = 0; i < 10; ++i) third->step();
  expect_alike(*whole, *third);
}

// The first one's parameters are everybody's, whatever the others drew.
TEST(TrainingOfRanks, StartsWithTheParametersOfTheFirst) {
  if (!all_ranks()) GTEST_SKIP() << "there is one rank";
  Model model = model_of_doubles();
  auto& fill = *model.init.mutable_op(0)->mutable_arg(1);
  const float first = fill.floats(0);
  fill.set_floats(0, first + static_cast<float>(all_ranks()->rank()));
  const auto made = session_of(model, {}, all_ranks());
  EXPECT_EQ(made->parameters().fetch(model.init.op(0).output(0)).data<double>()[0], first);
}

// The trainer: one folder, which the first rank writes, and a checkpoint that any number of ranks goes on from.
TEST(TrainingOfRanks, LeavesTheFolderOfOneProcess) {
  const TempFolder folder;
  const std::string text = folder.file("text");
  write_all(text, tiny_text());
  const auto train = [&](const std::string& out, int64_t iterations, RanksPtr together, bool resume) {
    TrainOptions options = tiny_options(text, iterations);
    options.batch = 12;
    options.out = folder.file(out);
    options.resume = resume;
    options.ranks = std::move(together);
    return Trainer(tiny_net(), options, {}).run();
  };
  const TrainResult alone = train("alone", 20, nullptr, false);
  train("together", 10, all_ranks(), false);
  const TrainResult together = train("together", 20, all_ranks(), true);
  EXPECT_NEAR(together.loss, alone.loss, 1e-4);
  EXPECT_NEAR(*together.validation_loss, *alone.validation_loss, 1e-4);
  if (rank() != 0) {
    EXPECT_FALSE(std::filesystem::exists(folder.file("together")));
    return;
  }
  const auto one = load_latest(folder.file("alone")), other = load_latest(folder.file("together"));
  ASSERT_TRUE(one && other);
  for (const auto& [name, value] : one->contents.tensors)
    EXPECT_EQ(compare(value, other->contents.tensors.at(name), 1e-3), "") << name;
}

TEST(TrainingOfRanks, RefusesWhatItDoesNotDo) {
  if (!all_ranks()) GTEST_SKIP() << "there is one rank";
  const TempFolder folder;
  write_all(folder.file("text"), tiny_text());
  const auto refusal = [&](const auto& change) {
    TrainOptions options = tiny_options(folder.file("text"), 2);
    options.ranks = all_ranks();
    change(options);
    return error_text([&] { Trainer(tiny_net(), options, {}); });
  };
  expect_contains(refusal([](TrainOptions& o) { o.batch = 1; }), "a batch of 1 has nothing for some of");
  expect_contains(refusal([](TrainOptions& o) { o.batch = 4 * all_ranks()->size() + 1; }), "streams equally");
  expect_contains(refusal([](TrainOptions& o) { o.optimizer.shard = true, o.tensorboard = "board"; }),
                  "does not go together with an event file of gradients");
  expect_contains(refusal([](TrainOptions& o) { o.iterations = 0, o.seconds = 5; }), "a run for a given time");
  expect_contains(refusal([](TrainOptions& o) { o.learning = "rtrl"; }), "learning rules other than bptt");
}

// What a run says of itself holds for those that go on with it.
TEST(TrainingOfRanks, RefusesToGoOnWithWhatItDoesNotDo) {
  if (!all_ranks()) GTEST_SKIP() << "there is one rank";
  const TempFolder folder;
  write_all(folder.file("text"), tiny_text());
  TrainOptions options = tiny_options(folder.file("text"), 2);
  options.batch = 12;
  options.out = folder.file("private");
  options.optimizer.dp_clip = 1;
  Trainer(tiny_net(), options, {}).run();
  TrainOptions more = tiny_options(folder.file("text"), 4);
  more.out = options.out;
  more.resume = true;
  more.ranks = all_ranks();
  expect_contains(error_text([&] { Trainer(tiny_net(), more, {}); }), "does not go together with clipping by streams");
}

}  // namespace
}  // namespace stepnet::testing::training_test
