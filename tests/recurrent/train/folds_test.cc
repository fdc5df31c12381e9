// Folds: parts of the samples of which one is held out, for cross-validation.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "core/compute/threads.h"
#include "core/io/npy.h"
#include "recurrent/train/run_folder.h"
#include "recurrent/train/sample_data.h"
#include "recurrent/train/trained_model.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing::folds_test {
namespace {

// The next value of a series, from the values before: windows, of which neighbours share rows.
constexpr const char* kNext = R"(
  name: "next"
  op { type: "FC" input: "x" input: "W" input: "b" output: "guess" }
  op { type: "Squeeze" input: "y" output: "target" arg { name: "dims" ints: 2 } }
  op { type: "MSELoss" input: "guess" input: "target" output: "loss" }
  [stepnet.model] {
    init { op { type: "XavierFill" output: "W" arg { name: "shape" ints: 1 ints: 3 } }
           op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } } }
    loss: "loss" batch: 4
    data { column: "series" blob: "x" window: 3 stride: STRIDE normalize: true }
    data { column: "series" blob: "y" window: 1 stride: STRIDE shift: 3 }
    metric { name: "r2" prediction: "guess" target: "target" }
    CARRY
  })";

std::string next_net(int stride, const std::string& carry = "") {
  std::string net = kNext;
  for (const auto& [from, to] : {std::pair{std::string("STRIDE"), std::to_string(stride)}, {"CARRY", carry}})
    for (size_t at = 0; (at = net.find(from)) != net.npos;) net.replace(at, from.size(), to);
  return net;
}

class Folds : public ::testing::Test {
 protected:
  Folds() {
    set_threads(1);
    Tensor series = Tensor::empty(DType::float32, {83, 1});
    for (int64_t i = 0; i < 83; ++i)
      series.data<float>()[i] = std::sin(0.3f * static_cast<float>(i)) + 0.01f * static_cast<float>(i);
    write_npy(folder_.file("series.npy"), series);
  }
  ~Folds() override { set_threads(0); }

  std::vector<std::string> data() const { return {"series=" + folder_.file("series.npy")}; }
  TrainOptions options(const std::string& fold, const std::string& out = "") const {
    TrainOptions o;
    o.data = data();
    o.fold = fold;
    o.epochs = 4;
    o.given = {"fold"};
    if (!out.empty()) o.out = folder_.file(out);
    return o;
  }
  static TrainResult train(TrainOptions o, int64_t stop_after = 1 << 30) {
    std::atomic<bool> stop{false};
    o.stop = &stop;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { stop = p.iteration >= stop_after; };
    return Trainer(parse_net_text(next_net(1)), o, events).run();
  }

  TempFolder folder_;
};

TEST_F(Folds, PartTheSamples) {
  for (const auto& [samples, folds] : {std::pair<int64_t, int64_t>{10, 3}, {7, 7}, {80, 2}, {103, 10}, {1000, 999}}) {
    int64_t next = 0;
    for (int64_t f = 1; f <= folds; ++f) {
      const SampleRange range = fold_range(fmt::format("{}/{}", f, folds), samples);
      EXPECT_EQ(range.begin, next);
      EXPECT_GT(range.size(), 0);
      for (int64_t k = range.begin; k < range.end; ++k) EXPECT_EQ(k * folds / samples, f - 1);
      next = range.end;
    }
    EXPECT_EQ(next, samples);
  }
}

// Rows of the windows of both parts, for each fold: none is in both, and of the windows between no more are left out
// than must be.
TEST_F(Folds, ShareNoRows) {
  for (const int64_t stride : {1, 2, 4, 5}) {
    const Model model = read_model(parse_net_text(next_net(static_cast<int>(stride))));
    for (int64_t f = 1; f <= 3; ++f) {
      const SampleData d = load_samples(model, options(fmt::format("{}/3", f)));
      const int64_t samples = count_samples(d.training), reach = 4;
      std::vector<bool> held_out(83), is_trained(static_cast<size_t>(samples));
      for (int64_t i = 0; i < d.predicted.size(); ++i)
        for (int64_t row = 0; row < reach; ++row)
          held_out[static_cast<size_t>(d.predicted.at(i) * stride + row)] = true;
      for (int64_t i = 0; i < d.trained.size(); ++i) is_trained[static_cast<size_t>(d.trained.at(i))] = true;
      for (int64_t k = 0; k < samples; ++k) {
        bool shares = false;
        for (int64_t row = 0; row < reach; ++row) shares = shares || held_out[static_cast<size_t>(k * stride + row)];
        EXPECT_NE(is_trained[static_cast<size_t>(k)], shares)
            << "stride " << stride << " fold " << f << " sample " << k;
      }
    }
  }
}

TEST_F(Folds, AreTrainedAndEvaluated) {
  std::vector<double> losses;
  for (const char* fold : {"1/3", "2/3", "3/3"}) {
    const TrainOptions o = options(fold, std::string("run-") + fold[0]);
    const TrainResult r = train(o);
    EXPECT_TRUE(r.finished);
    TrainedModel model(RunFolder(o.out, RunFolder::Open::existing).latest().contents, nullptr);
    const TrainedModel::Evaluation e = model.evaluate(data(), {.fold = fold});
    EXPECT_EQ(e.samples, std::string(fold) == "1/3" || std::string(fold) == "2/3" ? 27 : 26);
    EXPECT_NEAR(e.loss, *r.validation_loss, 1e-6);
    EXPECT_EQ(model.evaluate(data()).samples, 80);
    losses.push_back(e.loss);
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);
}

TEST_F(Folds, TheMiddleOneIsNormalisedByTheOthers) {
  const Model model = read_model(parse_net_text(next_net(1)));
  const SampleData d = load_samples(model, options("2/3"));
  EXPECT_EQ(d.trained.gap_begin, 24);  // three windows before sample 27 have rows of it
  EXPECT_EQ(d.trained.gap_end, 57);
  double sum = 0;
  const Tensor series = read_npy(folder_.file("series.npy"));
  for (int64_t k = 0; k < 80; ++k)
    for (int64_t row = k; row < k + 3; ++row)
      if (k < 24 || k >= 57) sum += static_cast<double>(series.data<float>()[row]);
  EXPECT_NEAR(d.training[0].mean[0], sum / (3 * (24 + 23)), 1e-9);
}

TEST_F(Folds, ResumedRunsEndInTheSameBits) {
  TrainOptions whole = options("2/3", "whole"), parts = options("2/3", "parts");
  for (TrainOptions* o : {&whole, &parts}) {
    o->validate_every = 9;
    o->checkpoint_every = 4;
  }
  train(whole);
  EXPECT_FALSE(train(parts, 7).finished);
  parts.resume = true;
  parts.epochs = 0;
  TrainOptions other = parts;
  other.fold = "1/3";
  EXPECT_EQ(error_text([&] { train(other); }),
            "the run has fold 2/3, but now 1/3 is asked for\n  fix leave out --fold, or start another run");
  parts.fold = "";
  parts.given = {};  // it is the run's
  EXPECT_TRUE(train(parts).finished);
  EXPECT_EQ(saved_bytes(parts.out), saved_bytes(whole.out));
}

TEST_F(Folds, ARunWithoutFoldsStaysOne) {
  TrainOptions o = options("", "run");
  o.given = {};
  train(o, 3);
  o.resume = true;
  o.epochs = 0;
  o.fold = "1/3";
  o.given = {"fold"};
  expect_contains(error_text([&] { train(o); }), "the run has fold none, but now 1/3 is asked for");
  std::map<std::string, std::string> older = settings_of(TrainOptions());
  older.erase("fold");
  expect_contains(error_text([&] { take_settings(older, o); }), "the run has fold none, but now 1/3 is asked for");
}

TEST_F(Folds, OfStreamsAreTheFirstAndTheLast) {
  constexpr const char* kStream = R"(
    op { type: "RNN" input: "x" input: "before" input: "V" input: "W" input: "b" input: "c"
         output: "all" output: "last" arg { name: "hidden" i: 1 } }
    op { type: "MSELoss" input: "all" input: "y" output: "loss" }
    [stepnet.model] {
      init { op { type: "XavierFill" output: "V" arg { name: "shape" ints: 1 ints: 1 } }
             op { type: "XavierFill" output: "W" arg { name: "shape" ints: 1 ints: 1 } }
             op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } }
             op { type: "ConstantFill" output: "c" arg { name: "shape" ints: 1 } } }
      loss: "loss" batch: 2
      data { column: "series" blob: "x" axis: 1 window: 4 stride: 4 }
      data { column: "series" blob: "y" axis: 1 window: 4 stride: 4 shift: 1 }
      carry { from: "last" to: "before" size: 1 }
    })";
  for (const char* fold : {"1/4", "4/4"}) EXPECT_TRUE(Trainer(parse_net_text(kStream), options(fold)).run().finished);
  const std::string text = error_text([&] { Trainer(parse_net_text(kStream), options("2/4")); });
  expect_contains(text, "samples come in streams");
  expect_contains(text, "samples 4 to 10 between others are left out");
  expect_contains(text, "fix hold out the first or the last fold");
}

TEST_F(Folds, ThatAreNoneAreRefused) {
  const auto refusal = [&](const std::string& fold) { return error_text([&] { train(options(fold)); }); };
  for (const char* fold : {"3", "1/", "/3", "a/b", "1/3x", "1 / 3", "1.5/3"})
    expect_contains(refusal(fold), "give it as I/N, such as 1/5 for the first of five");
  expect_contains(refusal("1/1"), "there must be at least 2 folds, but there are 1");
  expect_contains(refusal("0/3"), "folds are numbered from 1 to 3, so there is no fold 0");
  expect_contains(refusal("4/3"), "no fold 4");
  expect_contains(refusal("-1/3"), "no fold -1");
  expect_contains(refusal("1/81"), "80 samples cannot be parted into 81 folds");
  TrainOptions o = options("1/3");
  o.held_out_data = o.data;
  expect_contains(error_text([&] { train(o); }), "give a fold, a share or held-out data");
  o = options("1/3");
  o.given = {"fold", "holdout"};
  expect_contains(error_text([&] { train(o); }), "held out is given in more than one way");
  o = options("1/3");
  o.data.clear();
  o.epochs = 0;
  o.iterations = 1;
  o.text = folder_.file("text");
  expect_contains(error_text([&] { Trainer(tiny_net(), o); }), "a text has neither held-out data nor folds nor epochs");
}

}  // namespace
}  // namespace stepnet::testing::folds_test
