// Training runs: they learn, and a run that was stopped ends in the same bits as one that was not.
#include "stepnet/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "core/compute/threads.h"
#include "recurrent/report/metrics.h"
#include "stepnet/arguments.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::trainer_test {
namespace {

using testing::read_all;
using testing::TempFolder;
using testing::tiny_net;

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    set_threads(1);
    testing::write_all(text_, testing::tiny_text());
  }
  ~TrainerTest() override { set_threads(0); }

  TrainOptions options(int64_t iterations, const std::string& folder = "") {
    TrainOptions o = testing::tiny_options(text_, iterations);
    if (!folder.empty()) o.out = folder_.file(folder);
    return o;
  }
  // Runs until `stop_after` iterations are finished.
  TrainResult train(TrainOptions o, int64_t stop_after = 1 << 30) {
    std::atomic<bool> stop{false};
    o.stop = &stop;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { stop = p.iteration >= stop_after; };
    return Trainer(tiny_net(), o, events).run();
  }

  TempFolder folder_;
  std::string text_ = folder_.file("text");
};

TEST_F(TrainerTest, LossFalls) {
  const std::map<std::string, double> rates = {{"adam", 0.02},
                                               {"adamw", 0.02},
                                               {"adagrad", 0.1},
                                               {"rmsprop", 0.01},
                                               {"sgd", 1.0},
                                               {"momentum", 0.2},
                                               {"nesterov", 0.2},
                                               {"lion", 0.003},
                                               {"nadam", 0.02},
                                               {"lamb", 0.05},
                                               {"caffe2-adam", 0.02},
                                               {"caffe2-rmsprop", 0.01},
                                               {"caffe2-momentum", 0.2},
                                               {"caffe2-nesterov", 0.2}};
  for (const std::string& optimizer : optimizer_names()) {
    TrainOptions o = options(150);
    o.optimizer.optimizer = optimizer;
    o.optimizer.lr = rates.at(optimizer);
    std::vector<double> losses;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { losses.push_back(p.loss); };
    const TrainResult r = Trainer(tiny_net(), o, events).run();
    EXPECT_TRUE(r.finished);
    ASSERT_EQ(losses.size(), 150u);
    EXPECT_NEAR(losses.front(), std::log(32.0), 0.2) << optimizer;
    EXPECT_LT(r.loss, 0.6 * losses.front()) << optimizer;
    EXPECT_LT(r.validation_loss, 0.6 * losses.front()) << optimizer;
    EXPECT_GE(r.validation_loss, r.best_loss);
  }
}

// So many streams that a batch has several segments.
TEST_F(TrainerTest, WhatWaitsOnDiskChangesNoBits) {
  testing::write_all(text_, testing::tiny_text(20000));
  TrainOptions plain = options(8, "plain"), offloaded = options(8, "offloaded");
  for (TrainOptions* o : {&plain, &offloaded}) {
    o->batch = 64;
    o->timesteps = 64;
  }
  offloaded.offload = folder_.file("values");
  const TrainResult expected = train(plain), result = train(offloaded);
  EXPECT_EQ(result.loss, expected.loss);
  EXPECT_EQ(testing::saved_bytes(offloaded.out), testing::saved_bytes(plain.out));
  EXPECT_FALSE(std::filesystem::exists(offloaded.offload));  // made by the run, and gone with it
}

TEST_F(TrainerTest, ABudgetIsKeptAndChangesNoBits) {
  testing::write_all(text_, testing::tiny_text(20000));
  TrainOptions plain = options(4, "plain");
  plain.batch = 64;
  plain.timesteps = 64;
  plain.holdout = 0;
  const TrainResult expected = train(plain);
  TrainOptions small = plain;
  small.out = "";
  small.memory_budget = 1;
  const std::string text = testing::error_text([&] { train(small); });
  const std::string before = "takes at least ";
  ASSERT_NE(text.find(before), std::string::npos) << text;
  const int64_t least = std::stoll(text.substr(text.find(before) + before.size()));
  for (const int64_t budget : {least, least * 11 / 10, int64_t{1} << 30}) {
    TrainOptions o = plain;
    o.out = folder_.file(fmt::format("budget-{}", budget));
    o.memory_budget = budget;
    const int64_t live = allocator({}).counters().live;
    allocator({}).reset_peak();
    EXPECT_EQ(train(o).loss, expected.loss);
    EXPECT_LE(allocator({}).counters().peak - live, budget);
    EXPECT_EQ(testing::saved_bytes(o.out), testing::saved_bytes(plain.out)) << budget;
  }
  NetDef net = tiny_net();
  *net.add_arg() = make_arg("memory_budget_bytes", least - 1);
  small.memory_budget = 0;
  EXPECT_NE(testing::error_text([&] { Trainer(net, small).run(); }).find(before), std::string::npos);
  *net.mutable_arg(0) = make_arg("memory_budget_bytes", 0);
  EXPECT_NE(testing::error_text([&] { Trainer(net, small).run(); }).find("above 0"), std::string::npos);
  small.memory_budget = -1;
  EXPECT_NE(testing::error_text([&] { train(small); }).find("must be"), std::string::npos);
}

TEST_F(TrainerTest, AFolderThatCannotBeMadeIsSaidBeforeTraining) {
  TrainOptions o = options(8);
  o.offload = text_ + "/values";
  EXPECT_THROW(Trainer(tiny_net(), o), Error);
}

TEST_F(TrainerTest, ResumedRunsEndInTheSameBits) {
  // 3000 bytes less the held-out ones make 25 batches, so that 60 iterations pass the end of the text twice.
  for (const std::string& optimizer : optimizer_names()) {
    TrainOptions whole = options(60, "whole-" + optimizer), parts = options(60, "parts-" + optimizer);
    for (TrainOptions* o : {&whole, &parts}) {
      o->optimizer.optimizer = optimizer;
      o->optimizer.lr_policy = "poly";
      o->batch = 16;
      o->validate_every = 9;
      o->checkpoint_every = 4;
    }
    const TrainResult expected = train(whole);
    EXPECT_FALSE(train(parts, 7).finished);
    parts.resume = true;
    EXPECT_EQ(train(parts, 29).iteration, 29);
    EXPECT_EQ(train(parts, 30).iteration, 30);
    const TrainResult result = train(parts);
    EXPECT_TRUE(result.finished);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.best_loss, expected.best_loss);
    EXPECT_EQ(testing::saved_bytes(parts.out), testing::saved_bytes(whole.out)) << optimizer;
    EXPECT_EQ(testing::saved_bytes(parts.out + "/best"), testing::saved_bytes(whole.out + "/best")) << optimizer;
    EXPECT_FALSE(testing::saved_bytes(whole.out).empty());
  }
}

TEST_F(TrainerTest, SomeOptimizersDecayWeights) {
  for (const std::string& optimizer : optimizer_names()) {
    TrainOptions o = options(3);
    o.optimizer.optimizer = optimizer;
    std::vector<double> losses[2];
    for (const double decay : {0.5, 0.0}) {
      o.optimizer.weight_decay = decay;
      TrainEvents events;
      events.iteration = [&](const TrainProgress& p) { losses[decay == 0].push_back(p.loss); };
      Trainer(tiny_net(), o, events).run();
    }
    EXPECT_EQ(losses[0] != losses[1], optimizer == "adamw" || optimizer == "lion" || optimizer == "lamb") << optimizer;
  }
}

// Nesterov's step is another than that of plain momentum from the second iteration on.
TEST_F(TrainerTest, NesterovIsNotMomentum) {
  std::map<std::string, std::vector<double>> losses;
  for (const std::string optimizer : {"momentum", "nesterov"}) {
    TrainOptions o = options(4);
    o.optimizer.optimizer = optimizer;
    o.optimizer.lr = 0.2;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { losses[optimizer].push_back(p.loss); };
    Trainer(tiny_net(), o, events).run();
  }
  EXPECT_EQ(losses["momentum"][0], losses["nesterov"][0]);
  EXPECT_NE(losses["momentum"][3], losses["nesterov"][3]);
}

TEST_F(TrainerTest, AFinishedRunCanGoOn) {
  TrainOptions whole = options(20, "whole"), parts = options(11, "parts");
  whole.validate_every = parts.validate_every = 100;
  train(whole);
  train(parts);
  parts.resume = true;
  EXPECT_EQ(train(parts).iteration, 11);
  parts.iterations = 20;
  EXPECT_EQ(train(parts).iteration, 20);
  EXPECT_EQ(testing::saved_bytes(parts.out), testing::saved_bytes(whole.out));
}

TEST_F(TrainerTest, ARunForATimeFixesItsIterations) {
  TrainOptions o = options(0, "timed");
  o.seconds = 3;
  std::vector<std::string> notes;
  TrainEvents events;
  events.note = [&](const std::string& text) { notes.push_back(text); };
  const TrainResult r = Trainer(tiny_net(), o, events).run();
  EXPECT_TRUE(r.finished);
  EXPECT_EQ(r.iteration, r.total);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], fmt::format("{} iterations will take about 3 s", r.total));
  o.resume = true;
  EXPECT_EQ(Trainer(tiny_net(), o).run().total, r.total);
}

TEST_F(TrainerTest, AStopBeforeTheIterationsAreFixedCanBeResumed) {
  TrainOptions o = options(0, "timed");
  o.seconds = 2.5;
  const TrainResult stopped = train(o, 2);
  EXPECT_EQ(stopped.iteration, 2);
  EXPECT_GT(stopped.total, 2);
  o.seconds = 0;
  o.resume = true;
  EXPECT_EQ(train(o, stopped.iteration + 3).total, stopped.total);
}

// Iterations of the training lines and of the validation lines.
std::pair<std::vector<int>, std::vector<int>> logged(const std::string& path) {
  std::pair<std::vector<int>, std::vector<int>> result;
  std::istringstream lines(read_all(path));
  for (std::string line; std::getline(lines, line);) {
    const int iteration = std::stoi(line.substr(line.find(':') + 1));
    (line.find("validation_bpc") == std::string::npos ? result.first : result.second).push_back(iteration);
  }
  return result;
}

TEST_F(TrainerTest, MetricsGoOnFromTheCheckpoint) {
  TrainOptions o = options(10, "run");
  o.validate_every = 3;
  train(o, 5);
  const std::string path = o.out + "/metrics.jsonl";
  // What a killed process leaves behind: lines after the checkpoint, the last one cut short.
  testing::write_all(path, read_all(path) + "{\"iteration\":6,\"loss\":1}\n{\"iteration\":7,\"lo");
  o.resume = true;
  train(o);
  const auto [training, validation] = logged(path);
  EXPECT_EQ(training, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(validation, (std::vector<int>{3, 6, 9, 10}));
}

TEST_F(TrainerTest, MetricsAreJsonLines) {
  const std::string path = folder_.file("m.jsonl");
  MetricsLog log(path, 0);
  log.training(3, 1.5, 1234.4, 0.0025, 2.5);
  log.validation(3, 0.5);
  EXPECT_EQ(read_all(path),
            "{\"iteration\":3,\"loss\":1.5,\"bpc\":2.1640425613334453,\"chars_per_second\":1234,\"lr\":0.0025,"
            "\"seconds\":2.5}\n{\"iteration\":3,\"validation_bpc\":0.7213475204444817}\n");
}

// A disk that is full: the run ends at the end of that iteration, validation and best checkpoint included.
TEST_F(TrainerTest, LinesThatCannotBeWrittenAreSavedWithTheCheckpoint) {
  TrainOptions o = options(5, "run");
  o.metrics = "/dev/full";
  o.validate_every = 1;
  const std::string error = testing::error_text([&] { train(o); });
  testing::expect_contains(error, "cannot write the metrics file /dev/full: No space left on device\n");
  testing::expect_contains(error, "whose last checkpoint is that of iteration 1");
  EXPECT_TRUE(std::filesystem::exists(o.out + "/best/best.ckpt"));
  o.metrics = folder_.file("m.jsonl");
  o.resume = true;
  train(o);
  const std::vector<int> all = {1, 2, 3, 4, 5};
  EXPECT_EQ(logged(o.metrics), std::pair(all, all));
}

TEST_F(TrainerTest, MetricsAreCompletedAfterALossOfPower) {
  const std::string path = folder_.file("m.jsonl"), line = "{\"iteration\":1,\"loss\":1}\n";
  std::string lines = line;
  for (int i = 2; i <= 4; ++i) lines += fmt::format("{{\"iteration\":{},\"loss\":1}}\n", i);
  std::string zeros = lines;
  zeros.replace(zeros.find(":2,") + 2, 5, 5, '\0');
  for (const std::string& left : {line, line + line.substr(0, 9), zeros, lines, std::string()}) {
    testing::write_all(path, left);
    { const MetricsLog log(path, 3, lines.substr(left.empty() ? 0 : line.size())); }
    EXPECT_EQ(read_all(path), lines.substr(0, 3 * line.size())) << left;
  }
}

TEST_F(TrainerTest, NothingHeldOutMeansNoValidation) {
  TrainOptions o = options(3, "run");
  o.holdout = 0;
  const TrainResult r = train(o);
  EXPECT_LT(r.validation_loss, 0);
  EXPECT_FALSE(std::filesystem::exists(o.out + "/best"));
  EXPECT_TRUE(std::filesystem::exists(o.out + "/parameters.minidb"));
}

}  // namespace
}  // namespace stepnet::trainer_test
