// Training on samples: it learns, every sample counts once in an epoch, held-out figures are those of all held-out
// samples, and a run that was stopped within an epoch ends in the same bits.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "core/compute/threads.h"
#include "core/io/npy.h"
#include "recurrent/train/sample_data.h"
#include "recurrent/train/sample_evaluator.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing::sample_training_test {
namespace {

// Sequences [N, T, 2] whose class is whether the sum of the first feature is positive, classified by an RNN.
constexpr const char* kNet = R"(
  name: "sorter"
  op { type: "RNN" name: "rnn" arg { name: "hidden" i: 8 } input: "X" input: "" input: "V" input: "W" input: "b"
       input: "c" output: "" output: "h" }
  op { type: "FC" arg { name: "axis" i: 2 } input: "h" input: "U" input: "d" output: "scores3" }
  op { type: "Squeeze" arg { name: "dims" ints: 0 } input: "scores3" output: "scores" }
  op { type: "SoftmaxWithLoss" input: "scores" input: "label" output: "p" output: "loss" }
  [stepnet.model] {
    init {
      name: "sorter_init"
      op { type: "XavierFill" output: "V" arg { name: "shape" ints: 8 ints: 2 } }
      op { type: "XavierFill" output: "W" arg { name: "shape" ints: 8 ints: 8 } }
      op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 8 } }
      op { type: "ConstantFill" output: "c" arg { name: "shape" ints: 8 } }
      op { type: "XavierFill" output: "U" arg { name: "shape" ints: 2 ints: 8 } }
      op { type: "ConstantFill" output: "d" arg { name: "shape" ints: 2 } }
    }
    loss: "loss" batch: 16
    data { column: "x" blob: "X" axis: 1 }
    data { column: "label" }
    metric { name: "accuracy" prediction: "scores" target: "label" }
  })";

class SampleTraining : public ::testing::Test {
 protected:
  SampleTraining() {
    set_threads(1);
    write(203);
  }
  ~SampleTraining() override { set_threads(0); }

  void write(int64_t samples) const {
    Tensor x = Tensor::empty(DType::float64, {samples, 5, 2}), label = Tensor::empty(DType::int64, {samples});
    for (int64_t i = 0; i < samples; ++i) {
      double sum = 0;
      for (int64_t e = 0; e < 10; ++e) {
        const double value = std::sin(static_cast<double>(7 * i * i + 13 * e + i));
        x.data<double>()[i * 10 + e] = value;
        if (e % 2 == 0) sum += value;
      }
      label.data<int64_t>()[i] = sum > 0 ? 1 : 0;
    }
    write_npy(folder_.file("x.npy"), x);
    write_npy(folder_.file("label.npy"), label);
  }

  TrainOptions options(int64_t epochs, const std::string& out = "") const {
    TrainOptions o;
    o.data = {"x=" + folder_.file("x.npy"), "label=" + folder_.file("label.npy")};
    o.holdout = 0.2;
    o.epochs = epochs;
    o.optimizer.lr = 0.02;
    if (!out.empty()) o.out = folder_.file(out);
    return o;
  }

  static TrainResult train(TrainOptions o, int64_t stop_after = 1 << 30, const std::string& net = kNet) {
    std::atomic<bool> stop{false};
    o.stop = &stop;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { stop = p.iteration >= stop_after; };
    return Trainer(parse_net_text(net), o, events).run();
  }

  TempFolder folder_;
};

TEST_F(SampleTraining, Learns) {
  const TrainResult r = train(options(40));
  EXPECT_TRUE(r.finished);
  EXPECT_EQ(r.iteration, 40 * 11);  // 162 samples
  ASSERT_EQ(r.metrics.size(), 1);
  EXPECT_EQ(r.metrics[0].first, "accuracy");
  EXPECT_GT(r.metrics[0].second, 0.9);
  EXPECT_LT(*r.best_loss, 0.3);
}

TEST_F(SampleTraining, HeldOutFiguresAreThoseOfAllHeldOutSamples) {
  Model model = read_model(parse_net_text(kNet));
  Workspace parameters;
  RunContext run;
  run_net_once(model.init, parameters, run);
  const SampleData data = load_samples(model, options(1));
  EXPECT_EQ(data.predicted.size(), 41);  // two batches of 16 and one of 9
  double loss = 0, accuracy = 0;
  for (const int64_t batch : {16, 1, 41, 100}) {
    model.batch = batch;
    model.fed = fed_types(data.training, batch);
    SampleEvaluator held_out(model, parameters, data.held_out, data.predicted);
    const double again = held_out.loss();
    EXPECT_EQ(held_out.scores()[0].first, "accuracy");
    if (batch == 16) {
      loss = again;
      accuracy = held_out.scores()[0].second;
    }
    EXPECT_NEAR(again, loss, 1e-6);
    EXPECT_EQ(held_out.scores()[0].second, accuracy);
  }
}

TEST_F(SampleTraining, ResumedRunsEndInTheSameBits) {
  for (const char* order : {"shuffled", "given"}) {
    TrainOptions whole = options(5, std::string("whole-") + order), parts = options(5, std::string("parts-") + order);
    for (TrainOptions* o : {&whole, &parts}) {
      o->order = order;
      o->validate_every = 9;
      o->checkpoint_every = 4;
    }
    const TrainResult expected = train(whole);
    EXPECT_FALSE(train(parts, 7).finished);  // within an epoch
    parts.resume = true;
    parts.epochs = 0;
    EXPECT_EQ(train(parts, 11).iteration, 11);  // at its end
    EXPECT_EQ(train(parts, 30).iteration, 30);
    const TrainResult result = train(parts);
    EXPECT_TRUE(result.finished);
    EXPECT_EQ(result.iteration, 55);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.best_loss, expected.best_loss);
    EXPECT_EQ(saved_bytes(parts.out), saved_bytes(whole.out)) << order;
    EXPECT_EQ(saved_bytes(parts.out + "/best"), saved_bytes(whole.out + "/best")) << order;
  }
  EXPECT_NE(saved_bytes(folder_.file("whole-shuffled")), saved_bytes(folder_.file("whole-given")));
}

TEST_F(SampleTraining, ABudgetIsKeptAndChangesNoBits) {
  TrainOptions plain = options(2, "plain");
  const TrainResult expected = train(plain);
  TrainOptions small = options(2);
  small.memory_budget = 1;
  const std::string text = error_text([&] { train(small); }), before = "takes at least ";
  ASSERT_NE(text.find(before), std::string::npos) << text;
  const int64_t least = std::stoll(text.substr(text.find(before) + before.size()));
  for (const int64_t budget : {least, 2 * least}) {
    TrainOptions o = options(2, fmt::format("budget-{}", budget));
    o.memory_budget = budget;
    const int64_t live = allocator({}).counters().live;
    allocator({}).reset_peak();
    EXPECT_EQ(train(o).loss, expected.loss);
    EXPECT_LE(allocator({}).counters().peak - live, budget);
    EXPECT_EQ(saved_bytes(o.out), saved_bytes(plain.out));
  }
}

TEST_F(SampleTraining, EndsWhereNothingGetsBetter) {
  TrainOptions o = options(400, "whole"), parts = options(400, "parts");
  for (TrainOptions* each : {&o, &parts}) {
    each->validate_every = 5;
    each->patience = 3;
    each->optimizer.lr = 0.1;
  }
  const TrainResult r = train(o);
  EXPECT_TRUE(r.finished);
  EXPECT_LT(r.iteration, 400 * 11);
  EXPECT_GT(*r.validation_loss, *r.best_loss);
  train(parts, r.iteration - 7);
  parts.resume = true;
  parts.epochs = 0;
  EXPECT_EQ(train(parts).iteration, r.iteration);
  EXPECT_EQ(saved_bytes(parts.out), saved_bytes(o.out));
  EXPECT_EQ(train(parts).iteration, r.iteration);  // it has ended
}

TEST_F(SampleTraining, RatesFollowACosine) {
  for (const auto& [policy, warmup] : {std::pair{"cosine", 0}, {"warmupCosine", 20}}) {
    TrainOptions o = options(10);
    o.optimizer.lr_policy = policy;
    o.optimizer.lr_warmup = 20;
    std::vector<double> rates;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { rates.push_back(p.learning_rate); };
    Trainer(parse_net_text(kNet), o, events).run();
    ASSERT_EQ(rates.size(), 110);
    for (int i = 0; i < 110; ++i) {
      const double share = i < warmup ? 1.0 * i / warmup : 0.5 * (1 + std::cos(M_PI * (i - warmup) / (110 - warmup)));
      EXPECT_NEAR(rates[static_cast<size_t>(i)], 0.02 * share, 1e-8) << policy << " " << i;
    }
  }
}

TEST_F(SampleTraining, HeldOutDataAreOthers) {
  TrainOptions o = options(3);
  const std::string more = folder_.file("more.npy"), labels = folder_.file("labels.npy");
  write_npy(more, Tensor::zeros(DType::float32, {3, 5, 2}));
  write_npy(labels, Tensor::zeros(DType::int32, {3}));
  o.held_out_data = {"x=" + more, "label=" + labels};
  Trainer trainer(parse_net_text(kNet), o);
  EXPECT_EQ(trainer.training_samples(), 203);
  EXPECT_EQ(trainer.validation_samples(), 3);
  EXPECT_TRUE(trainer.run().best_loss.has_value());
  write_npy(more, Tensor::zeros(DType::float32, {3, 4, 2}));
  EXPECT_NE(error_text([&] { Trainer(parse_net_text(kNet), o); }).find("are [5, 2] to train on, but [4, 2]"),
            std::string::npos);
}

TEST_F(SampleTraining, WhatDoesNotFitIsRefused) {
  const auto refusal = [&](const std::function<void(TrainOptions&)>& change, const std::string& net = kNet) {
    TrainOptions o = options(1);
    change(o);
    return error_text([&] { Trainer(parse_net_text(net), o); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal([](TrainOptions& o) { o.data.pop_back(); }),
      "the data have no column \"label\", which is fed to \"label\"");
  has(refusal([](TrainOptions& o) { o.data.push_back(o.data[0]); }), "two columns \"x\"");
  has(refusal([](TrainOptions& o) { o.text = "t"; }), "a text and data are both given");
  has(refusal([](TrainOptions& o) { o.order = "random"; }), "samples have no order \"random\"");
  has(refusal([](TrainOptions& o) { o.holdout = 0.999; }), "nothing of the 203 samples is left");
  has(refusal([](TrainOptions& o) { o.optimizer.dp_clip = 1; }), "by the streams of a text");
  has(refusal([](TrainOptions& o) { o.epochs = 0; }), "--epochs");
  has(refusal([](TrainOptions& o) { o.epochs = int64_t{1} << 62; }), "epochs are too many");
  const auto changed = [](std::string from, const std::string& to) {
    std::string net = kNet;
    return net.replace(net.find(from), from.size(), to);
  };
  const auto none = [](TrainOptions&) {};
  has(refusal(none, changed("axis: 1", "axis: 3")), "stand along a dimension from 0 to 2 of \"X\", not along 3");
  has(refusal(none, changed("blob: \"X\"", "blob: \"Z\"")),
      "\"Z\", which the model names as the blob of the column \"x\"");
  has(refusal(none, changed("accuracy", "acuracy")), "there is no metric \"acuracy\"");
  has(refusal(none, changed("prediction: \"scores\"", "prediction: \"score\"")), "no blob \"score\"");
  has(refusal(none, changed("loss: \"loss\"", "loss: \"loss\" input: \"X\"")), "no input, target and logits of a text");
  has(refusal(none, changed("{ column: \"label\" }", "{ column: \"label\" type: \"complex\" }")), "complex");
  write(204);
  TrainOptions other = options(2, "run");
  train(other, 3);
  write(203);
  other.resume = true;
  other.epochs = 0;
  has(error_text([&] { train(other); }), "are not those that the run was started with");
  TrainOptions text = tiny_options(folder_.file("text"), 3);
  write_all(folder_.file("text"), tiny_text());
  has(error_text([&] { Trainer(parse_net_text(kNet), text); }), "is trained on data, but a text is given");
  has(error_text([&] { Trainer(tiny_net(), options(1)); }), "is trained on a text, but data are given");
}

}  // namespace
}  // namespace stepnet::testing::sample_training_test
