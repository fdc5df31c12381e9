// Ranks that train together, each on its part of every batch, against one process with all of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "recurrent/distributed/world_ranks.h"
#include "recurrent/train/stepper.h"
#include "recurrent/train/text_batches.h"
#include "tests/core/errors.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing::training_test {
namespace {

constexpr int64_t kSteps = 100;

RanksPtr all_ranks() {
  static const RanksPtr ranks = ranks_of(create_world(default_world_timeout()));
  return ranks;
}

// Parameters of doubles, so that no sum rounds in a way that shows.
Model model_of_doubles() {
  Model model = read_model(tiny_net());
  Workspace workspace;
  RunContext run;
  run_net_once(model.init, workspace, run);
  NetDef init;
  for (const OperatorDef& op : model.init.op()) {
    const Tensor value = to_double(workspace.fetch(op.output(0)));
    OperatorDef& fill = *init.add_op();
    fill.set_type("GivenTensorDoubleFill");
    fill.add_output(op.output(0));
    Argument& shape = *fill.add_arg();
    shape.set_name("shape");
    for (const int64_t d : value.shape().dims()) shape.add_ints(d);
    Argument& values = *fill.add_arg();
    values.set_name("values");
    for (int64_t i = 0; i < value.size(); ++i)
      values.add_floats(static_cast<float>(value.data<double>()[i] + 0.1 * std::sin(static_cast<double>(i))));
  }
  model.init = init;
  model.batch = 12;  // for one to four ranks
  return model;
}

TextStreams streams_of(const Model& model) {
  static const std::string text = tiny_text();
  return TextStreams(Vocabulary::of_text(text).encode(text, "text"), model.batch, model.timesteps, "text");
}

// A session of this process alone, or of all ranks.
std::unique_ptr<TrainingSession> session(const Model& whole, const OptimizerOptions& optimizer, RanksPtr together) {
  Model model = whole;
  Shard shard;
  if (together) {
    shard = {together->rank(), together->size()};
    model.ranks = together;
    model.batch = whole.batch / together->size();
  }
  return std::make_unique<TrainingSession>(model, optimizer, text_batches(model, streams_of(whole), shard), 3, kSteps);
}

void expect_alike(TrainingSession& a, TrainingSession& b, double tolerance = 1e-12) {
  const auto one = a.save(), other = b.save();
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, value] : one) EXPECT_EQ(compare(value, other.at(name), tolerance), "") << name;
}

void expect_trains_alike(const OptimizerOptions& optimizer, const Model& model = model_of_doubles(),
                         double tolerance = 1e-12) {
  const auto alone = session(model, optimizer, nullptr), together = session(model, optimizer, all_ranks());
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
  const auto one = session(model, optimizer, all_ranks());
  for (int i = 0; i < 20; ++i) one->step();
  const auto first = one->save();
  const auto two = session(model, optimizer, all_ranks());
  for (int i = 0; i < 20; ++i) two->step();
  for (const auto& [name, value] : two->save())
    EXPECT_EQ(std::memcmp(value.raw(), first.at(name).raw(), value.bytes()), 0) << name;
}

TEST(TrainingOfRanks, GoesOnInOneProcessAndBack) {
  const Model model = model_of_doubles();
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  const auto whole = session(model, optimizer, nullptr);
  for (int i = 0; i < 30; ++i) whole->step();
  const auto first = session(model, optimizer, all_ranks());
  for (int i = 0; i < 10; ++i) first->step();
  const auto second = session(model, optimizer, nullptr);
  second->restore(first->save());
  for (int i = 0; i < 10; ++i) second->step();
  const auto third = session(model, optimizer, all_ranks());
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
  const auto made = session(model, {}, all_ranks());
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
  expect_contains(refusal([](TrainOptions& o) { o.memory_budget = 1 << 30; }),
                  "does not go together with a memory budget");
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
