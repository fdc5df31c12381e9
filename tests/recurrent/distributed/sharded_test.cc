// Ranks of which each has the optimizer's state of its part of the parameters, and gradients that move as bfloat16,
// against one process with all of it; and what they take, against what is estimated.
#include <gtest/gtest.h>

#include <cstring>

#include "core/compute/threads.h"
#include "recurrent/distributed/join_ranks.h"
#include "recurrent/train/memory_budget.h"
#include "stepnet/matmul.h"
#include "tests/core/errors.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/distributed/rank_sessions.h"

namespace stepnet::testing::sharded_test {
namespace {

OptimizerOptions sharded(OptimizerOptions optimizer) {
  optimizer.shard = true;
  return optimizer;
}

void expect_trains_alike(const OptimizerOptions& optimizer, const Model& model = model_of_doubles()) {
  constexpr double kTolerance = 1e-12;
  const auto alone = session_of(model, optimizer, nullptr), whole = session_of(model, optimizer, all_ranks()),
             parts = session_of(model, sharded(optimizer), all_ranks());
  for (int64_t i = 0; i < kSteps; ++i) {
    const double loss = alone->step();
    ASSERT_NEAR(whole->step(), loss, kTolerance) << i;
    ASSERT_NEAR(parts->step(), loss, kTolerance) << i;
  }
  expect_alike(*alone, *parts, kTolerance);
  expect_alike(*whole, *parts, kTolerance);
}

TEST(ShardedTraining, OfAdamIsThatOfOneProcess) {
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  expect_trains_alike(optimizer);
}

TEST(ShardedTraining, OfMomentumClipsTheNormOfTheSum) {
  OptimizerOptions optimizer;
  optimizer.optimizer = "momentum";
  optimizer.lr = 0.5;
  optimizer.clip = 0.3;
  expect_trains_alike(optimizer);
}

TEST(ShardedTraining, OfEachOptimizerIsThatOfOneProcess) {
  for (const std::string& name : optimizer_names()) {
    if (name == "lamb" || name == "nadam") continue;
    SCOPED_TRACE(name);
    OptimizerOptions optimizer;
    optimizer.optimizer = name;
    optimizer.lr = 0.01;
    const Model model = model_of_doubles();
    const auto alone = session_of(model, optimizer, nullptr),
               parts = session_of(model, sharded(optimizer), all_ranks());
    for (int64_t i = 0; i < 10; ++i) ASSERT_NEAR(parts->step(), alone->step(), 1e-12) << i;
    expect_alike(*alone, *parts);
  }
}

TEST(ShardedTraining, AddsGradientsOfSeveralBatchesUp) {
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  optimizer.accumulate = 3;
  optimizer.average = 0.9;
  expect_trains_alike(optimizer);
}

// Parameters of groups with rates and decays of their own are in shards of their own.
TEST(ShardedTraining, KeepsToGroups) {
  Model model = model_of_doubles();
  ParameterGroup group;
  group.set_parameters("W_*");
  group.set_rate(0.3F);
  group.set_weight_decay(0.2F);
  model.groups.push_back(group);
  OptimizerOptions optimizer;
  optimizer.optimizer = "adamw";
  optimizer.lr = 0.02;
  expect_trains_alike(optimizer, model);
}

TEST(ShardedTraining, GoesOnWithAnyNumberOfRanks) {
  const Model model = model_of_doubles();
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  const auto alone = session_of(model, optimizer, nullptr);
  for (int i = 0; i < 30; ++i) alone->step();
  const auto first = session_of(model, sharded(optimizer), all_ranks());
  for (int i = 0; i < 10; ++i) first->step();
  const auto second = session_of(model, optimizer, nullptr);
  second->restore(first->save());
  for (int i = 0; i < 10; ++i) second->step();
  const auto third = session_of(model, sharded(optimizer), all_ranks());
  third->restore(second->save());
  for (int i = 0; i < 10; ++i) third->step();
  expect_alike(*alone, *third);
}

int64_t live() { return allocator(Device{}).counters().live; }

// Adam has two numbers for each parameter.
TEST(ShardedTraining, HasTheStateOfItsPartOnly) {
  if (!all_ranks()) GTEST_SKIP() << "there is one rank";
  const Model model = model_of_doubles();
  int64_t elements = 0;
  const auto bytes_of = [&](const OptimizerOptions& optimizer) {
    const int64_t before = live();
    const auto made = session_of(model, optimizer, all_ranks());
    elements = 0;
    for (const std::string& name : made->parameter_names()) elements += made->parameters().fetch(name).size();
    return live() - before;
  };
  const int64_t all = bytes_of({}), part = bytes_of(sharded({}));
  const auto state = static_cast<int64_t>(2 * sizeof(double)) * elements;
  EXPECT_GE(all - part, state - (state + all_ranks()->size() - 1) / all_ranks()->size() - 64 * 4);
}

TEST(ShardedTraining, RefusesWhatTakesMoreThanAPart) {
  OptimizerOptions optimizer = sharded({});
  optimizer.optimizer = "lamb";
  expect_contains(error_text([&] { check_optimizer(optimizer); }), "the state of the optimizer lamb is not shared out");
  optimizer = sharded({});
  optimizer.loss_scale = 8;
  expect_contains(error_text([&] { check_optimizer(optimizer); }), "neither with a scale of the loss");
  optimizer = {};
  optimizer.reduce = "float16";
  expect_contains(error_text([&] { check_optimizer(optimizer); }),
                  "gradients cannot be added up in \"float16\"; there are float32, bfloat16.");
}

Model model_of_floats() {
  Model model = read_model(tiny_net());
  model.batch = 12;
  return model;
}

TEST(RoundedReduction, TrainsAboutAsWell) {
  OptimizerOptions optimizer;
  optimizer.lr = 0.02;
  const auto alone = session_of(model_of_floats(), optimizer, nullptr);
  for (const bool shard : {false, true}) {
    optimizer.reduce = "bfloat16";
    optimizer.shard = shard;
    const auto rounded = session_of(model_of_floats(), optimizer, all_ranks());
    const auto again = session_of(model_of_floats(), optimizer, all_ranks());
    double loss = 0, first = 0;
    for (int64_t i = 0; i < 60; ++i) {
      loss = rounded->step();
      if (i == 0) first = loss;
      ASSERT_EQ(again->step(), loss) << i;
      if (!shard) {
        ASSERT_NEAR(alone->step(), loss, 0.1) << i;
      }
    }
    EXPECT_LT(loss, 0.8 * first);
    const auto other = again->save();
    for (const auto& [name, value] : rounded->save())
      EXPECT_EQ(std::memcmp(value.raw(), other.at(name).raw(), value.bytes()), 0) << name;
  }
}

TEST(RoundedReduction, RefusesDoubles) {
  if (!all_ranks()) GTEST_SKIP() << "there is one rank";
  OptimizerOptions optimizer;
  optimizer.reduce = "bfloat16";
  for (const bool shard : {false, true}) {
    optimizer.shard = shard;
    expect_contains(error_text([&] { session_of(model_of_doubles(), optimizer, all_ranks()); }),
                    "gradients are to be added up in bfloat16, but \"");
  }
}

// To the byte, and with as many ranks that are only claimed.
TEST(EstimateOfRanks, IsThePeakOfATrainingSession) {
  const SerialScope serial;
  for (const bool shard : {false, true})
    for (const auto& [reduce, accumulate] :
         {std::pair{"float32", 1}, {"bfloat16", 1}, {"float32", 2}, {"bfloat16", 3}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", shard, reduce, accumulate));
      OptimizerOptions optimizer;
      optimizer.accumulate = accumulate;
      optimizer.shard = shard;
      optimizer.reduce = reduce;
      Model model = model_of_floats();
      model.batch /= ranks();
      expect_peak_as_estimated(model, optimizer, [&] { return session_of(model_of_floats(), optimizer, all_ranks()); });
    }
}

// A run within a budget has the losses of one without, and keeps to it.
TEST(EstimateOfRanks, BudgetsAreKept) {
  const SerialScope serial;
  Model all = model_of_floats();
  all.timesteps = 100;
  Model part = all;
  part.batch /= ranks();
  part.ranks = all_ranks();
  const int64_t whole = training_peak({.model = part}), budget = whole * 98 / 100;
  Model fitted = fit_training({.model = part}, budget).model;
  fitted.batch = all.batch;
  const auto measured = [&](const Model& model, int64_t& peak) {
    forget_products();
    allocator(Device{}).reset_peak();
    const int64_t base = live();
    const auto session = session_of(model, {}, all_ranks());
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) losses.push_back(session->step());
    peak = allocator(Device{}).counters().peak - base;
    return losses;
  };
  int64_t free = 0, kept = 0;
  const std::vector<double> losses = measured(all, free);
  EXPECT_EQ(measured(fitted, kept), losses);
  EXPECT_EQ(free, whole);
  EXPECT_LE(kept, budget);
}

}  // namespace
}  // namespace stepnet::testing::sharded_test
