// Training on sequences of different lengths, windows and streams of a series, missing values, losses of several terms
// and parameters in groups.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "core/compute/threads.h"
#include "core/io/npy.h"
#include "recurrent/train/run_folder.h"
#include "recurrent/train/sample_data.h"
#include "recurrent/train/sample_evaluator.h"
#include "recurrent/train/trained_model.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing::sequence_training_test {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// A number for each timestep and one for the sequence, by a GRU: [T, B, 2] with lengths.
constexpr const char* kRagged = R"(
  name: "ragged"
  op { type: "GRU" input: "X" input: "" input: "V" input: "W" input: "b" input: "c" input: "lengths"
       output: "all" output: "last" arg { name: "hidden" i: 6 } }
  op { type: "FC" input: "last" input: "U" input: "d" output: "guess3" arg { name: "axis" i: 2 } }
  op { type: "Squeeze" input: "guess3" output: "guess" arg { name: "dims" ints: 0 ints: 2 } }
  op { type: "MSELoss" input: "guess" input: "sum" output: "loss" }
  [stepnet.model] {
    init {
      op { type: "XavierFill" output: "V" arg { name: "shape" ints: 18 ints: 2 } }
      op { type: "XavierFill" output: "W" arg { name: "shape" ints: 18 ints: 6 } }
      op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 18 } }
      op { type: "ConstantFill" output: "c" arg { name: "shape" ints: 18 } }
      op { type: "XavierFill" output: "U" arg { name: "shape" ints: 1 ints: 6 } }
      op { type: "ConstantFill" output: "d" arg { name: "shape" ints: 1 } }
    }
    loss: "loss" batch: 8
    data { column: "x" blob: "X" axis: 1 lengths: "lengths" normalize: true }
    data { column: "sum" }
    metric { name: "r2" prediction: "guess" target: "sum" }
  })";

// Each next value of a series, by an RNN whose state is carried on.
constexpr const char* kStream = R"(
  name: "stream"
  op { type: "RNN" input: "x" input: "before" input: "V" input: "W" input: "b" input: "c"
       output: "all" output: "last" arg { name: "hidden" i: 4 } }
  op { type: "FC" input: "all" input: "U" input: "d" output: "guess" arg { name: "axis" i: 2 } }
  op { type: "MSELoss" input: "guess" input: "next" output: "loss" }
  [stepnet.model] {
    init {
      op { type: "XavierFill" output: "V" arg { name: "shape" ints: 4 ints: 1 } }
      op { type: "XavierFill" output: "W" arg { name: "shape" ints: 4 ints: 4 } }
      op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 4 } }
      op { type: "ConstantFill" output: "c" arg { name: "shape" ints: 4 } }
      op { type: "XavierFill" output: "U" arg { name: "shape" ints: 1 ints: 4 } }
      op { type: "ConstantFill" output: "d" arg { name: "shape" ints: 1 } }
    }
    loss: "loss" batch: 3
    data { column: "series" blob: "x" axis: 1 window: 5 stride: 5 }
    data { column: "series" blob: "next" axis: 1 window: 5 stride: 5 shift: 1 }
    carry { from: "last" to: "before" size: 4 }
    metric { name: "mean_squared_error" prediction: "guess" target: "next" }
  })";

class SequenceTraining : public ::testing::Test {
 protected:
  SequenceTraining() {
    set_threads(1);
    constexpr int64_t kSamples = 90;
    Tensor lengths = Tensor::empty(DType::int64, {kSamples}), sum = Tensor::zeros(DType::float64, {kSamples});
    int64_t rows = 0;
    for (int64_t i = 0; i < kSamples; ++i) rows += lengths.data<int64_t>()[i] = 1 + i * 11 % 9;
    Tensor x = Tensor::empty(DType::float64, {rows, 2});
    for (int64_t i = 0, row = 0; i < kSamples; ++i)
      for (int64_t t = 0; t < lengths.data<int64_t>()[i]; ++t, ++row) {
        x.data<double>()[2 * row] = std::sin(static_cast<double>(7 * row));
        x.data<double>()[2 * row + 1] = 1;
        sum.data<double>()[i] += x.data<double>()[2 * row] / 2;
      }
    Tensor series = Tensor::empty(DType::float32, {101, 1});
    for (int64_t i = 0; i < 101; ++i) series.data<float>()[i] = std::sin(0.3f * static_cast<float>(i));
    write_npy(file("x.npy"), x);
    write_npy(file("lengths.npy"), lengths);
    write_npy(file("sum.npy"), sum);
    write_npy(file("series.npy"), series);
  }
  ~SequenceTraining() override { set_threads(0); }

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::vector<std::string> ragged() const {
    return {"x=" + file("x.npy") + ":" + file("lengths.npy"), "sum=" + file("sum.npy")};
  }
  std::vector<std::string> series() const { return {"series=" + file("series.npy")}; }

  TrainOptions options(const std::vector<std::string>& data, int64_t epochs, const std::string& out = "") const {
    TrainOptions o;
    o.data = data;
    o.holdout = 0.2;
    o.epochs = epochs;
    o.optimizer.lr = 0.02;
    if (!out.empty()) o.out = file(out);
    return o;
  }

  static TrainOptions held_out(const std::vector<std::string>& data, double share) {
    TrainOptions o;
    o.data = data;
    o.holdout = share;
    return o;
  }

  static TrainResult train(TrainOptions o, const std::string& net, int64_t stop_after = 1 << 30) {
    std::atomic<bool> stop{false};
    o.stop = &stop;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { stop = p.iteration >= stop_after; };
    return Trainer(parse_net_text(net), o, events).run();
  }

  void expect_same_bits_resumed(const std::vector<std::string>& data, const std::string& net,
                                const std::string& order) {
    TrainOptions whole = options(data, 4, "whole-" + order), parts = options(data, 4, "parts-" + order);
    for (TrainOptions* o : {&whole, &parts}) {
      o->order = order;
      o->validate_every = 5;
      o->checkpoint_every = 3;
    }
    const TrainResult expected = train(whole, net);
    train(parts, net, 4);
    parts.resume = true;
    parts.epochs = 0;
    train(parts, net, 11);
    EXPECT_EQ(train(parts, net).iteration, expected.iteration);
    EXPECT_EQ(saved_bytes(parts.out), saved_bytes(whole.out)) << order;
  }

  TempFolder folder_;
};

TEST_F(SequenceTraining, LearnsFromSequencesOfDifferentLengths) {
  const TrainResult r = train(options(ragged(), 60), kRagged);
  ASSERT_EQ(r.metrics.size(), 1);
  EXPECT_GT(r.metrics[0].second, 0.9);
}

TEST_F(SequenceTraining, PaddingChangesNoFigure) {
  Model model = read_model(parse_net_text(kRagged));
  Workspace parameters;
  RunContext run;
  run_net_once(model.init, parameters, run);
  const SampleData data = load_samples(model, held_out(ragged(), 0.4));
  const auto loss = [&](int64_t batch) {
    model.batch = batch;
    model.fed = fed_types(data.training, batch);
    return SampleEvaluator(model, parameters, data.held_out, data.predicted).loss();
  };
  const double alone = loss(1);
  EXPECT_GT(alone, 0);
  for (const int64_t batch : {7, 36}) EXPECT_NEAR(loss(batch), alone, 1e-6 * alone);
}

TEST_F(SequenceTraining, ResumedRunsEndInTheSameBits) {
  expect_same_bits_resumed(ragged(), kRagged, "bucketed");
  expect_same_bits_resumed(ragged(), kRagged, "shuffled");
  expect_same_bits_resumed(series(), kStream, "streams");
}

TEST_F(SequenceTraining, ABudgetIsKeptWithTheLongestSequences) {
  TrainOptions plain = options(ragged(), 2, "plain");
  const TrainResult expected = train(plain, kRagged);
  TrainOptions small = options(ragged(), 2);
  small.memory_budget = 1;
  const std::string text = error_text([&] { train(small, kRagged); }), before = "takes at least ";
  ASSERT_NE(text.find(before), std::string::npos) << text;
  small.memory_budget = std::stoll(text.substr(text.find(before) + before.size()));
  const int64_t live = allocator({}).counters().live;
  allocator({}).reset_peak();
  EXPECT_NEAR(train(small, kRagged).loss, expected.loss, 1e-6);  // all batches are as long as the longest
  EXPECT_LE(allocator({}).counters().peak - live, small.memory_budget);
}

TEST_F(SequenceTraining, NoRowIsInWindowsOfBothParts) {
  for (const auto& [window, stride, shift] : {std::tuple{5, 1, 3}, {1, 1, 0}, {4, 4, 1}, {3, 7, 0}}) {
    std::string net = replaced(kStream, "window: 5 stride: 5 }",
                               fmt::format("window: {} stride: {} shift: {} }}", window, stride, shift));
    net = replaced(net, "window: 5 stride: 5 shift: 1", fmt::format("window: 2 stride: {} shift: 1", stride));
    const SampleData data = load_samples(read_model(parse_net_text(net)), held_out(series(), 0.3));
    const int64_t after_last_row = (data.trained.end - 1) * stride + std::max(3, shift + window);
    EXPECT_LE(after_last_row, data.predicted.begin * stride);
    EXPECT_GT(after_last_row + stride, data.predicted.begin * stride);  // and no more is lost than must be
  }
  const Model model = read_model(parse_net_text(kStream));
  const SampleData data = load_samples(model, held_out(series(), 0.3));
  EXPECT_EQ(data.predicted.end, 20);
  EXPECT_EQ(data.predicted.begin, 14);
  EXPECT_EQ(data.trained.end, 13);  // window 13 has row 70, as its target's last, with which the other part begins
}

// The state goes on from window to window: figures of one stream are those of the whole series in one run.
TEST_F(SequenceTraining, StreamsAreOneLongSequence) {
  const auto error = [&](int64_t window) {
    std::string net = kStream;
    for (int i = 0; i < 2; ++i)
      net = replaced(net, "window: 5 stride: 5", fmt::format("window: {0} stride: {0}", window));
    Model model = read_model(parse_net_text(net));
    model.batch = 1;
    Workspace parameters;
    RunContext run;
    run_net_once(model.init, parameters, run);
    const std::vector<FedColumn> columns = linked_columns(model, series());
    model.fed = fed_types(columns, 1);
    SampleEvaluator evaluator(model, parameters, columns, {0, count_samples(columns)});
    const double loss = evaluator.loss();
    EXPECT_NEAR(evaluator.scores()[0].second, loss, 1e-6);
    return loss;
  };
  const double whole = error(100);
  EXPECT_NEAR(error(5), whole, 1e-6);
  EXPECT_NEAR(error(1), whole, 1e-6);
}

TEST_F(SequenceTraining, PredictionsOfAStreamAreThoseOfTheSeries) {
  TrainOptions o = options(series(), 3, "run");
  train(o, kStream);
  const LoadedCheckpoint loaded = RunFolder(o.out, RunFolder::Open::existing).latest();
  TrainedModel model(loaded.contents, nullptr);
  const Tensor parts = model.predict(series(), {{"guess", 1}})[0];
  EXPECT_EQ(parts.shape(), Shape({20, 5, 1}));
  Tensor start = Tensor::empty(DType::float32, {51, 1});
  const Tensor all = read_npy(file("series.npy"));
  std::copy_n(all.data<float>(), 51, start.data<float>());
  write_npy(file("start.npy"), start);
  const Tensor some = model.predict({"series=" + file("start.npy")}, {{"guess", 1}})[0];
  for (int i = 0; i < 50; ++i) EXPECT_EQ(some.data<float>()[i], parts.data<float>()[i]);
}

TEST_F(SequenceTraining, PredictionsOfSequencesAreAsLongAsTheLongest) {
  TrainOptions o = options(ragged(), 1, "run");
  train(o, kRagged);
  TrainedModel model(RunFolder(o.out, RunFolder::Open::existing).latest().contents, nullptr);
  model.set_batch(4);
  const std::vector<Tensor> few = model.predict({ragged()[0]}, {{"all", 1}, {"guess", 0}});
  EXPECT_EQ(few[0].shape(), Shape({90, 9, 6}));
  model.set_batch(90);
  const std::vector<Tensor> many = model.predict({ragged()[0]}, {{"all", 1}, {"guess", 0}});
  for (int64_t i = 0; i < many[0].size(); ++i) EXPECT_NEAR(few[0].data<float>()[i], many[0].data<float>()[i], 1e-6);
}

TEST_F(SequenceTraining, TermsAreAddedUp) {
  const std::string more = R"(
    op { type: "AveragedLoss" input: "guess" output: "mean" }
    op { type: "Scale" input: "mean" output: "part" arg { name: "scale" f: 0.25 } }
    op { type: "Sum" input: "error" input: "part" output: "loss" })";
  const std::string base = replaced(kRagged, "output: \"loss\"", "output: \"error\"");
  const std::string by_hand = replaced(base, "[stepnet.model]", more + "\n[stepnet.model]");
  std::string by_terms = replaced(base, "[stepnet.model]", R"(
    op { type: "AveragedLoss" input: "guess" output: "mean" } [stepnet.model])");
  by_terms = replaced(by_terms, "loss: \"loss\"",
                      "loss: \"loss\" term { blob: \"error\" } term { blob: \"mean\" weight: 0.25 }");
  const TrainResult expected = train(options(ragged(), 3), by_hand), r = train(options(ragged(), 3), by_terms);
  EXPECT_FLOAT_EQ(static_cast<float>(r.loss), static_cast<float>(expected.loss));
  ASSERT_EQ(r.metrics.size(), 3);
  EXPECT_EQ(r.metrics[1].first, "error");
  EXPECT_NEAR(r.metrics[1].second + 0.25 * r.metrics[2].second, *r.validation_loss, 1e-5);
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return error_text([&] { read_model(parse_net_text(replaced(by_terms, from, to))); });
  };
  EXPECT_NE(refusal("blob: \"mean\"", "blob: \"means\"").find("\"means\""), std::string::npos);
  EXPECT_NE(refusal("blob: \"mean\"", "blob: \"error\"").find("two figures of the model are called \"error\""),
            std::string::npos);
}

TEST_F(SequenceTraining, GroupsAreTrainedInTheirOwnWay) {
  const auto parameters = [&](const std::string& groups, const std::string& optimizer, const std::string& out) {
    TrainOptions o = options(ragged(), 0, out);
    o.iterations = 1;
    o.optimizer.optimizer = optimizer;
    o.optimizer.clip = 0;
    train(o, replaced(kRagged, "batch: 8", "batch: 8 " + groups));
    return RunFolder(o.out, RunFolder::Open::existing).latest().contents.tensors;
  };
  Workspace first;
  RunContext run;
  run.seed = 1;
  run_net_once(read_model(parse_net_text(kRagged)).init, first, run);
  const auto step = [&](const auto& tensors, const std::string& name) {
    return tensors.at("parameter/" + name).template data<float>()[0] - first.fetch(name).data<float>()[0];
  };
  const auto plain = parameters("", "sgd", "plain");
  const auto groups = parameters(
      "group { parameters: \"U\" frozen: true } group { parameters: \"d\" } group { parameters: \"*V*\" rate: 0.5 }",
      "sgd", "groups");
  EXPECT_NE(step(plain, "U"), 0);
  EXPECT_EQ(step(groups, "U"), 0);
  EXPECT_FLOAT_EQ(step(groups, "V"), step(plain, "V") / 2);
  EXPECT_EQ(step(groups, "W"), step(plain, "W"));
  const auto decayed = parameters("group { parameters: \"V\" weight_decay: 0.5 }", "adamw", "decayed");
  const auto adamw = parameters("", "adamw", "adamw");
  EXPECT_NEAR(step(decayed, "V") - step(adamw, "V"), -0.02 * (0.5 - 0.01) * first.fetch("V").data<float>()[0], 1e-7);
  EXPECT_EQ(step(decayed, "U"), step(adamw, "U"));
}

TEST_F(SequenceTraining, EveryOptimizerHeedsGroups) {
  Workspace first;
  RunContext run;
  run.seed = 1;
  run_net_once(read_model(parse_net_text(kRagged)).init, first, run);
  const auto trained = [&](const std::string& optimizer, const std::string& group) {
    TrainOptions o = options(ragged(), 0, fmt::format("{}-{}", optimizer, folder_.count()));
    o.iterations = 2;
    o.optimizer.optimizer = optimizer;
    train(o, replaced(kRagged, "batch: 8", "batch: 8 group { parameters: \"V\" " + group + " }"));
    return RunFolder(o.out, RunFolder::Open::existing).latest().contents.tensors.at("parameter/V").data<float>()[0];
  };
  for (const std::string& name : optimizer_names()) {
    EXPECT_EQ(trained(name, "rate: 0"), first.fetch("V").data<float>()[0]) << name;
    EXPECT_NE(trained(name, "rate: 1"), trained(name, "rate: 0.5")) << name;
    if (name != "adamw" && name != "lion" && name != "lamb") continue;
    EXPECT_NE(trained(name, "weight_decay: 0"), trained(name, "weight_decay: 0.3")) << name;
  }
}

TEST_F(SequenceTraining, GroupsThatMakeNoSenseAreRefused) {
  const auto refusal = [&](const std::string& group, const std::string& optimizer = "adam") {
    TrainOptions o = options(ragged(), 1);
    o.optimizer.optimizer = optimizer;
    return error_text(
        [&] { Trainer(parse_net_text(replaced(kRagged, "batch: 8", "batch: 8 group { " + group + " }")), o); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal("parameters: \"Z*\""), "no parameter of the net fits the group \"Z*\"");
  has(refusal("parameters: \"V\" rate: -1"), "must be by at least 0");
  has(refusal("parameters: \"V\" weight_decay: 1"), "a weight decay, which the optimizer adam does not have");
  has(refusal("parameters: \"V\" weight_decay: -1", "adamw"), "must be at least 0");
  has(refusal("parameters: \"*\" frozen: true"), "all parameters of the model are frozen");
  has(refusal("parameters: \"V\" frozen: true rate: 2"), "neither a rate nor a weight decay");
}

TEST_F(SequenceTraining, AveragesAreUsedInPlaceOfParameters) {
  TrainOptions o = options(ragged(), 0, "run");
  o.iterations = 7;
  o.validate_every = 7;
  o.optimizer.average = 0.75;
  std::vector<double> losses;
  const TrainResult r = train(o, kRagged);
  // The same steps, and the average by hand.
  TrainOptions plain = o;
  plain.optimizer.average = 0;
  Workspace first;
  RunContext run;
  run.seed = 1;
  run_net_once(read_model(parse_net_text(kRagged)).init, first, run);
  double average = first.fetch("V").data<float>()[0];
  for (int i = 1; i <= 7; ++i) {
    plain.out = file(fmt::format("plain-{}", i));
    plain.iterations = i;
    train(plain, kRagged);
    const auto tensors = RunFolder(plain.out, RunFolder::Open::existing).latest().contents.tensors;
    average = 0.75 * average + 0.25 * tensors.at("parameter/V").data<float>()[0];
  }
  const Checkpoint saved = RunFolder(o.out, RunFolder::Open::existing).latest().contents;
  EXPECT_NEAR(saved.tensors.at("state/train/V_average").data<float>()[0], average, 1e-6);
  Workspace used;
  load_parameters(read_model(parse_net_text(kRagged)), saved, used);
  EXPECT_NEAR(used.fetch("V").data<float>()[0], average, 1e-6);
  TrainedModel model(saved, nullptr);
  Model whole = model.model();
  whole.fed = fed_types(load_samples(whole, held_out(ragged(), 0.2)).training, 8);
  const SampleData data = load_samples(whole, held_out(ragged(), 0.2));
  Workspace child(&used);
  EXPECT_NEAR(SampleEvaluator(whole, used, data.held_out, data.predicted).loss(), *r.validation_loss, 1e-6);
}

TEST_F(SequenceTraining, RunsWithAveragesAndPlateausResumeToTheBit) {
  TrainOptions whole = options(ragged(), 12, "whole"), parts = options(ragged(), 12, "parts");
  for (TrainOptions* o : {&whole, &parts}) {
    o->validate_every = 3;
    o->optimizer.lr = 0.2;
    o->optimizer.lr_policy = "plateau";
    o->optimizer.lr_gamma = 0.5;
    o->optimizer.lr_patience = 2;
    o->optimizer.average = 0.9;
  }
  double least = 1;
  TrainEvents events;
  events.iteration = [&](const TrainProgress& p) { least = std::min(least, p.learning_rate); };
  const TrainResult expected = Trainer(parse_net_text(kRagged), whole, events).run();
  EXPECT_LT(least, 0.11);  // it came to a plateau
  train(parts, kRagged, 20);
  parts.resume = true;
  parts.epochs = 0;
  train(parts, kRagged, 50);
  EXPECT_EQ(train(parts, kRagged).best_loss, expected.best_loss);
  EXPECT_EQ(saved_bytes(parts.out), saved_bytes(whole.out));
}

TEST_F(SequenceTraining, GradientsOfSeveralBatchesAreThoseOfALargerOne) {
  for (const char* optimizer : {"sgd", "adam"}) {
    TrainOptions large = options(ragged(), 0, fmt::format("large-{}", optimizer)),
                 small = options(ragged(), 0, fmt::format("small-{}", optimizer));
    for (TrainOptions* o : {&large, &small}) {
      o->iterations = 6;
      o->order = "given";
      o->optimizer.optimizer = optimizer;
      o->optimizer.clip = 0.5;
    }
    large.batch = 12;  // the 72 samples are a multiple of both
    small.batch = 4;
    small.optimizer.accumulate = 3;
    const TrainResult expected = train(large, kRagged), r = train(small, kRagged);
    EXPECT_EQ(r.iteration, 6);
    EXPECT_NEAR(r.loss, expected.loss, 1e-5);
    const auto a = RunFolder(large.out, RunFolder::Open::existing).latest().contents.tensors;
    const auto b = RunFolder(small.out, RunFolder::Open::existing).latest().contents.tensors;
    for (const char* name : {"parameter/V", "parameter/W", "parameter/d"})
      for (int64_t i = 0; i < a.at(name).size(); ++i)
        EXPECT_NEAR(a.at(name).data<float>()[i], b.at(name).data<float>()[i], 2e-5) << name << " " << i;
  }
  TrainOptions whole = options(ragged(), 3, "whole"), parts = options(ragged(), 3, "parts");
  whole.optimizer.accumulate = parts.optimizer.accumulate = 4;
  EXPECT_EQ(train(whole, kRagged).iteration, 7);  // 27 batches
  train(parts, kRagged, 3);
  parts.resume = true;
  parts.epochs = 0;
  EXPECT_EQ(train(parts, kRagged).iteration, 7);
  EXPECT_EQ(saved_bytes(parts.out), saved_bytes(whole.out));
  whole.out.clear();
  whole.precision = "float16";
  EXPECT_NE(error_text([&] { train(whole, kRagged); }).find("go together neither with a scale of the loss"),
            std::string::npos);
}

TEST_F(SequenceTraining, OneCycleRisesAndFalls) {
  TrainOptions o = options(ragged(), 0);
  o.iterations = 100;
  o.optimizer.lr_policy = "oneCycle";
  std::vector<double> rates;
  TrainEvents events;
  events.iteration = [&](const TrainProgress& p) { rates.push_back(p.learning_rate / 0.02); };
  Trainer(parse_net_text(kRagged), o, events).run();
  ASSERT_EQ(rates.size(), 100);
  for (int i = 0; i < 100; ++i) {
    const double expected =
        i < 30 ? 0.04 + 0.96 * i / 30 : 4e-6 + (1 - 4e-6) * (1 + std::cos(M_PI * (i - 30) / 70)) / 2;
    EXPECT_NEAR(rates[static_cast<size_t>(i)], expected, 1e-5) << i;
  }
}

TEST_F(SequenceTraining, TheBestCheckpointIsTheOneWithTheBestMetric) {
  TrainOptions o = options(ragged(), 6, "run");
  o.best = "r2";
  o.validate_every = 4;
  double best = -1e9;
  TrainEvents events;
  events.validation = [&](const ValidationResult& v) {
    EXPECT_EQ(v.best, v.metrics[0].second > best);
    best = std::max(best, v.metrics[0].second);
  };
  const TrainResult r = Trainer(parse_net_text(kRagged), o, events).run();
  EXPECT_EQ(r.best_metric, best);
  o.out.clear();
  o.best = "r3";
  EXPECT_NE(error_text([&] { Trainer(parse_net_text(kRagged), o); }).find("no such metric\n  fix there are loss, r2"),
            std::string::npos);
  o.best = "r2";
  o.holdout = 0;
  EXPECT_NE(error_text([&] { Trainer(parse_net_text(kRagged), o); }).find("nothing is held out"), std::string::npos);
}

// As checkpoints keep it: in arguments, which the public format has.
TEST_F(SequenceTraining, AllOfAModelIsKeptInText) {
  const NetDef net = parse_net_text(replaced(kStream, "loss: \"loss\" batch: 3", R"(
    loss: "total" batch: 3
    term { blob: "loss" weight: 0.5 }
    group { parameters: "V" rate: 0.25 weight_decay: 0.125 }
    group { parameters: "W" frozen: true }
    data { column: "m" pad: -1.5 lengths: "l" mask: "k" type: "int32" normalize: true }
    metric { name: "mean" prediction: "guess" shown_as: "guesses" }
    metric { name: "accuracy" prediction: "guess" target: "next" mask: "k" })"));
  ModelDef before = net.GetExtension(model), after = parse_net_text(to_text(net)).GetExtension(model);
  for (ModelDef* def : {&before, &after}) def->clear_init();  // which has places in the text
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString()) << to_text(net);
}

TEST_F(SequenceTraining, WhatDoesNotFitIsRefused) {
  const auto refusal = [&](const std::string& net, const std::vector<std::string>& data,
                           const std::string& order = "") {
    TrainOptions o = options(data, 1);
    o.order = order;
    return error_text([&] { Trainer(parse_net_text(net), o); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal(kStream, series(), "shuffled"), "carries states from batch to batch, but samples come shuffled");
  has(refusal(replaced(kStream, "window: 5", "window: 500"), series()), "too few");
  has(refusal(replaced(kStream, "window: 5", "window: 0"), series()), "must be at least 1");
  has(refusal(replaced(kStream, "window: 5 stride: 5 }", "window: 5 stride: 4 }"), series()),
      "windows of \"x\" go on by 4 rows, but of \"next\" by 5");
  has(refusal(replaced(kStream, "window: 5 stride: 5 }", "stride: 5 }"), series()),
      "a stride or a shift, but no window");
  has(refusal(kRagged, {"x=" + file("x.npy"), "sum=" + file("sum.npy")}), "is to be fed the lengths of \"x\"");
  has(refusal(replaced(kRagged, "lengths: \"lengths\"", "lengths: \"X\""), ragged()), "something else, too");
  has(refusal(replaced(kRagged, "lengths: \"lengths\"", "lengths: \"none\""), ragged()), "\"none\"");
}

}  // namespace
}  // namespace stepnet::testing::sequence_training_test
