// Ranks of which each runs its layers on blocks of timesteps, against one process with all layers on all timesteps.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "core/compute/threads.h"
#include "recurrent/distributed/join_ranks.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/wavefront.h"
#include "stepnet/matmul.h"
#include "tests/core/errors.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/distributed/rank_sessions.h"
#include "tests/recurrent/stack_text.h"

namespace stepnet::testing::pipeline_test {
namespace {

Model stack_model(int64_t batch = 3, const std::string& text = stack_text()) {
  Model model = in_doubles(read_model(parse_net_text(text, "stack.pbtxt")));
  model.batch = batch;
  return model;
}

Model stage_model(const Model& whole, int64_t blocks) {
  Model model = whole;
  model.ranks = all_ranks();
  return wavefront_stage(model, plan_wavefront(model, ranks()), rank(), blocks);
}

std::unique_ptr<TrainingSession> stage_session(const Model& whole, const OptimizerOptions& optimizer, int64_t blocks) {
  return std::make_unique<TrainingSession>(stage_model(whole, blocks), optimizer,
                                           text_batches(whole, streams_of(whole)), 3, kSteps);
}

// What all ranks have together, on the first one.
void expect_collected(TrainingSession& alone, TrainingSession& together) {
  const auto one = alone.save(), all = together.save();
  if (rank() != 0) return;
  ASSERT_EQ(one.size(), all.size());
  for (const auto& [name, value] : one) EXPECT_EQ(compare(value, all.at(name), 1e-12), "") << name;
}

void expect_trains_alike(const Model& model, const OptimizerOptions& optimizer, int64_t blocks, int64_t steps = 10) {
  const auto alone = session_of(model, optimizer, nullptr), together = stage_session(model, optimizer, blocks);
  for (int64_t i = 0; i < steps; ++i) ASSERT_NEAR(together->step(), alone->step(), 1e-12) << i;
  expect_collected(*alone, *together);
}

OptimizerOptions adam() {
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  return optimizer;
}

TEST(Pipeline, IsOneProcess) {
  for (const int64_t batch : {1, 3})
    for (const int64_t blocks : {1, 3, 7}) {
      SCOPED_TRACE(fmt::format("batch {}, {} blocks", batch, blocks));
      expect_trains_alike(stack_model(batch), adam(), blocks);
    }
}

TEST(Pipeline, Learns) {
  const auto together = stage_session(stack_model(), adam(), 2);
  const double first = together->step();
  double loss = first;
  for (int i = 0; i < 99; ++i) loss = together->step();
  EXPECT_LT(loss, 0.8 * first);
}

TEST(Pipeline, ClipsTheNormOfAllRanks) {
  OptimizerOptions optimizer;
  optimizer.optimizer = "momentum";
  optimizer.lr = 0.5;
  optimizer.clip = 0.1;
  expect_trains_alike(stack_model(), optimizer, 3);
}

TEST(Pipeline, AddsGradientsOfSeveralBatchesUp) {
  OptimizerOptions optimizer = adam();
  optimizer.accumulate = 3;
  optimizer.average = 0.9;
  expect_trains_alike(stack_model(), optimizer, 2, 4);
}

TEST(Pipeline, OfRandomStacksIsOneProcess) {
  for (unsigned seed = 0; seed < 24; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    std::vector<std::pair<Layer, Behind>> layers;
    for (int l = ranks() + below(3); l > 0; --l)
      layers.emplace_back(static_cast<Layer>(below(4)), static_cast<Behind>(below(5)));
    Model model = stack_model(1 + below(4), stack_text(layers));
    model.timesteps = 1 + below(9);
    const int64_t blocks = 1 + below(static_cast<unsigned>(model.timesteps));
    SCOPED_TRACE(fmt::format("seed {}, batch {}, {} timesteps, {} blocks: {}", seed, model.batch, model.timesteps,
                             blocks, stack_text(layers)));
    expect_trains_alike(model, adam(), blocks, 3);
    if (HasFailure()) return;
  }
}

TEST(Pipeline, HasTheSameBitsInEachRun) {
  const auto one = stage_session(stack_model(), adam(), 3), two = stage_session(stack_model(), adam(), 3);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(one->step(), two->step());
  const auto first = one->save();
  for (const auto& [name, value] : two->save())
    EXPECT_EQ(std::memcmp(value.raw(), first.at(name).raw(), value.bytes()), 0) << name;
}

TEST(Pipeline, GoesOnInOneProcessAndBack) {
  const Model model = stack_model();
  const auto saved_of = [&](const TrainingSession& session) {
    Checkpoint saved;
    saved.tensors = session.save();
    if (all_ranks()) all_ranks()->broadcast(saved);
    return saved.tensors;
  };
  const auto whole = session_of(model, adam(), nullptr);
  for (int i = 0; i < 12; ++i) whole->step();
  const auto first = stage_session(model, adam(), 3);
  for (int i = 0; i < 4; ++i) first->step();
  const auto second = session_of(model, adam(), nullptr);
  second->restore(saved_of(*first));
  for (int i = 0; i < 4; ++i) second->step();
  const auto third = stage_session(model, adam(), 2);
  third->restore(saved_of(*second));
  for (int i = 0; i < 4; ++i) third->step();
  expect_collected(*whole, *third);
}

// A rank has its layers only.
TEST(Pipeline, SharesParametersOut) {
  const auto together = stage_session(stack_model(), adam(), 3);
  const auto alone = session_of(stack_model(), adam(), nullptr);
  const auto own = static_cast<double>(together->parameter_names().size());
  EXPECT_EQ(sum_over_ranks(own), alone->parameter_names().size());
}

int64_t live() { return allocator(Device{}).counters().live; }

TEST(Pipeline, TakesWhatIsEstimated) {
  const SerialScope serial;
  for (const int64_t blocks : {1, 3}) {
    const Model whole = stack_model();
    const Model model = stage_model(whole, blocks);
    const int64_t peak = training_peak({.model = model, .optimizer = adam()});
    forget_products();
    allocator(Device{}).reset_peak();
    const int64_t base = live();
    TrainingSession session(model, adam(), text_batches(whole, streams_of(whole)), 3, kSteps);
    for (int i = 0; i < 4; ++i) session.step();
    EXPECT_EQ(allocator(Device{}).counters().peak - base, peak) << blocks;
  }
}

TrainOptions options_of(const TempFolder& folder, const std::string& out, int64_t iterations) {
  TrainOptions options = tiny_options(folder.file("text"), iterations);
  options.out = folder.file(out);
  options.holdout = 0.2;
  return options;
}

TEST(Pipeline, LeavesTheFolderOfOneProcess) {
  const TempFolder folder;
  write_all(folder.file("text"), tiny_text());
  const NetDef net = parse_net_text(stack_text(), "stack.pbtxt");
  const TrainResult alone = Trainer(net, options_of(folder, "alone", 20), {}).run();
  const auto train = [&](int64_t iterations, bool resume) {
    TrainOptions options = options_of(folder, "together", iterations);
    options.ranks = all_ranks();
    options.pipeline = 3;
    options.resume = resume;
    return Trainer(net, options, {}).run();
  };
  train(10, false);
  const TrainResult together = train(20, true);
  EXPECT_NEAR(together.loss, alone.loss, 1e-3);
  EXPECT_NEAR(*together.validation_loss, *alone.validation_loss, 1e-3);
  if (rank() != 0) {
    EXPECT_FALSE(std::filesystem::exists(folder.file("together")));
    return;
  }
  const auto one = load_latest(folder.file("alone")), other = load_latest(folder.file("together"));
  ASSERT_TRUE(one && other);
  ASSERT_EQ(one->contents.tensors.size(), other->contents.tensors.size());
  for (const auto& [name, value] : one->contents.tensors)
    EXPECT_EQ(compare(value, other->contents.tensors.at(name), 1e-2), "") << name;
}

TEST(Pipeline, RefusesWhatItDoesNotDo) {
  const TempFolder folder;
  write_all(folder.file("text"), tiny_text());
  const auto refusal = [&](const auto& change) {
    TrainOptions options = tiny_options(folder.file("text"), 2);
    options.ranks = all_ranks();
    options.pipeline = 3;
    change(options);
    return error_text([&] { Trainer(parse_net_text(stack_text(), "stack.pbtxt"), options, {}); });
  };
  expect_contains(refusal([](TrainOptions& o) { o.precision = "bfloat16"; }), "a precision other than float32");
  expect_contains(refusal([](TrainOptions& o) { o.optimizer.shard = true; }), "(--shard-optimizer)");
  expect_contains(refusal([](TrainOptions& o) { o.optimizer.reduce = "bfloat16"; }), "(--reduce)");
  expect_contains(refusal([](TrainOptions& o) { o.memory_budget = 1 << 30; }), "a memory budget");
  expect_contains(refusal([](TrainOptions& o) { o.pipeline = 8; }), "7 timesteps cannot run in 8 blocks");
}

}  // namespace
}  // namespace stepnet::testing::pipeline_test
