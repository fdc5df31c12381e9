// Training whose gradients reach over the windows of timesteps that a text is read in.
#include <gtest/gtest.h>

#include <cmath>

#include "core/compute/threads.h"
#include "recurrent/train/run_folder.h"
#include "recurrent/train/stepper.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing::learning_test {
namespace {

// A gated cell over tokens that no parameter turns into numbers.
constexpr const char* kGated = R"(
name: "gated"
op { type: "Range" input: "size" output: "range" }
op { type: "ExpandDims" input: "tokens" output: "ids" arg { name: "dims" ints: 2 } }
op { type: "EQ" input: "ids" input: "range" output: "hot" }
op { type: "CastLike" input: "hot" input: "W_out" output: "x" }
op {
  type: "RecurrentNetwork" input: "x" input: "h_before" output: "h_all" output: "h_last"
  [stepnet.recurrent] {
    step_net {
      op { type: "FC" input: "x_t" input: "W_z" input: "b_z" output: "sum_z" arg { name: "axis" i: 2 } }
      op { type: "FC" input: "x_t" input: "W_n" input: "b_n" output: "sum_n" arg { name: "axis" i: 2 } }
      op { type: "Sigmoid" input: "sum_z" output: "z" }
      op { type: "Tanh" input: "sum_n" output: "n" }
      op { type: "Sub" input: "n" input: "h_prev" output: "d" }
      op { type: "Mul" input: "z" input: "d" output: "m" }
      op { type: "Sum" input: "h_prev" input: "m" output: "h" }
    }
    sequence { outer: "x" inner: "x_t" }
    state { input: "h_prev" output: "h" initial: "h_before" all: "h_all" last: "h_last" }
  }
}
op { type: "FC" input: "h_all" input: "W_out" input: "b_out" output: "logits" arg { name: "axis" i: 2 } }
op { type: "SoftmaxWithLoss" input: "logits" input: "next" output: "p" output: "loss" arg { name: "axis" i: 2 } }
[stepnet.model] {
  init {
    op { type: "XavierFill" output: "W_z" arg { name: "shape" ints: 12 ints: 32 } }
    op { type: "XavierFill" output: "W_n" arg { name: "shape" ints: 12 ints: 32 } }
    op { type: "XavierFill" output: "W_out" arg { name: "shape" ints: 32 ints: 12 } }
    op { type: "ConstantFill" output: "b_z" arg { name: "shape" ints: 12 } }
    op { type: "ConstantFill" output: "b_n" arg { name: "shape" ints: 12 } }
    op { type: "ConstantFill" output: "b_out" arg { name: "shape" ints: 32 } }
    op { type: "GivenTensorIntFill" output: "size" arg { name: "shape" ints: 1 } arg { name: "values" ints: 32 } }
  }
  loss: "loss" input: "tokens" target: "next" logits: "logits"
  carry { from: "h_last" to: "h_before" size: 12 }
  timesteps: 5 batch: 3
}
)";

NetDef gated_net() { return parse_net_text(kGated, "gated.pbtxt"); }

// What so many windows of plain gradient descent, with steps too small to change what comes after, make of a parameter
// that starts at zero.
Tensor moved(const std::string& parameter, std::optional<LearningRule> rule, int64_t timesteps, int windows) {
  Model model = read_model(gated_net());
  model.timesteps = timesteps;
  model.learning = rule;
  std::string text = tiny_text(2000);
  for (char& c : text) c = static_cast<char>(c % 32);
  OptimizerOptions optimizer;
  optimizer.optimizer = "sgd";
  optimizer.lr = 1e-5 * static_cast<double>(timesteps);  // the loss is a mean over timesteps
  optimizer.clip = 0;
  TrainingSession session(model, optimizer, TextStreams(text, model.batch, timesteps), 3, windows);
  for (int i = 0; i < windows; ++i) session.step();
  return session.save().at("parameter/" + parameter).clone();
}

double distance(const Tensor& a, const Tensor& b) {
  double most = 0, size = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a.data<float>()[i]) - b.data<float>()[i]));
    size = std::max(size, std::abs(static_cast<double>(b.data<float>()[i])));
  }
  return most / size;
}

TEST(Learning, WindowsAddUpToTheWhole) {
  for (const std::string parameter : {"b_z", "b_n"}) {
    const Tensor whole = moved(parameter, {}, 100, 1);
    EXPECT_LT(distance(moved(parameter, LearningRule::rtrl, 5, 20), whole), 2e-3) << parameter;
    EXPECT_LT(distance(moved(parameter, LearningRule::rtrl, 1, 100), whole), 2e-3) << parameter;
    EXPECT_GT(distance(moved(parameter, {}, 5, 20), whole), 2e-2) << parameter;
  }
}

// The same cell over the values of a series, in windows that are samples.
constexpr const char* kSeries = R"(
name: "series"
op {
  type: "RecurrentNetwork" input: "x" input: "h_before" output: "h_all" output: "h_last"
  [stepnet.recurrent] {
    step_net {
      op { type: "FC" input: "x_t" input: "W_z" input: "b_z" output: "sum_z" arg { name: "axis" i: 2 } }
      op { type: "FC" input: "x_t" input: "W_n" input: "b_n" output: "sum_n" arg { name: "axis" i: 2 } }
      op { type: "Sigmoid" input: "sum_z" output: "z" }
      op { type: "Tanh" input: "sum_n" output: "n" }
      op { type: "Sub" input: "n" input: "h_prev" output: "d" }
      op { type: "Mul" input: "z" input: "d" output: "m" }
      op { type: "Sum" input: "h_prev" input: "m" output: "h" }
    }
    sequence { outer: "x" inner: "x_t" }
    state { input: "h_prev" output: "h" initial: "h_before" all: "h_all" last: "h_last" }
  }
}
op { type: "FC" input: "h_all" input: "W_out" input: "b_out" output: "guess" arg { name: "axis" i: 2 } }
op { type: "MSELoss" input: "guess" input: "next" output: "loss" }
[stepnet.model] {
  init {
    op { type: "XavierFill" output: "W_z" arg { name: "shape" ints: 6 ints: 1 } }
    op { type: "XavierFill" output: "W_n" arg { name: "shape" ints: 6 ints: 1 } }
    op { type: "XavierFill" output: "W_out" arg { name: "shape" ints: 1 ints: 6 } }
    op { type: "ConstantFill" output: "b_z" arg { name: "shape" ints: 6 } }
    op { type: "ConstantFill" output: "b_n" arg { name: "shape" ints: 6 } }
    op { type: "ConstantFill" output: "b_out" arg { name: "shape" ints: 1 } }
  }
  loss: "loss" batch: 3
  data { column: "series" blob: "x" axis: 1 window: WINDOW stride: WINDOW }
  data { column: "series" blob: "next" axis: 1 window: WINDOW stride: WINDOW shift: 1 }
  carry { from: "h_last" to: "h_before" size: 6 }
}
)";

NetDef series_net(int64_t window) {
  const std::string from = "WINDOW";
  std::string text = kSeries;
  for (size_t at = 0; (at = text.find(from)) != text.npos;) text.replace(at, from.size(), std::to_string(window));
  return parse_net_text(text);
}

TrainOptions series_options(const std::string& learning) {
  Tensor series = Tensor::empty(DType::float32, {301, 1});  // three streams of 100 values that have a next one
  for (int i = 0; i < 301; ++i) series.data<float>()[i] = std::sin(0.4f * static_cast<float>(i));
  TrainOptions o;
  o.arrays = {{"series", series}};
  o.holdout = 0;
  o.learning = learning;
  return o;
}

// As `moved`, by a run on samples.
Tensor moved_by_samples(const std::string& parameter, const std::string& learning, int64_t window) {
  const TempFolder folder;
  TrainOptions o = series_options(learning);
  o.epochs = 1;
  o.optimizer.optimizer = "sgd";
  o.optimizer.lr = 1e-6 * static_cast<double>(window);  // so small that moved parameters make no difference
  o.optimizer.clip = 0;
  o.out = folder.file("run");
  Trainer(series_net(window), o).run();
  return RunFolder(o.out, RunFolder::Open::existing).latest().contents.tensors.at("parameter/" + parameter);
}

TEST(Learning, WindowsOfSamplesAddUpToTheWhole) {
  for (const std::string parameter : {"b_z", "b_n"}) {
    const Tensor whole = moved_by_samples(parameter, "bptt", 100);
    EXPECT_LT(distance(moved_by_samples(parameter, "rtrl", 5), whole), 2e-3) << parameter;
    EXPECT_LT(distance(moved_by_samples(parameter, "rtrl", 1), whole), 2e-3) << parameter;
    EXPECT_GT(distance(moved_by_samples(parameter, "bptt", 5), whole), 2e-2) << parameter;
  }
}

TEST(Learning, OfSamplesNeedsStatesThatAreCarried) {
  std::string text = kSeries;
  const std::string carry = "carry { from: \"h_last\" to: \"h_before\" size: 6 }", state = "initial: \"h_before\"";
  text.replace(text.find(carry), carry.size(), "");
  text.replace(text.find(state), state.size(), "");
  text.replace(text.find("input: \"h_before\""), 17, "");
  for (size_t at = 0; (at = text.find("WINDOW")) != text.npos;) text.replace(at, 6, "5");
  TrainOptions o = series_options("rtrl");
  o.iterations = 1;
  expect_contains(error_text([&] { Trainer(parse_net_text(text), o); }), "carr");
}

class LearningRuns : public ::testing::Test {
 protected:
  LearningRuns() {
    set_threads(1);
    write_all(text_, tiny_text());
  }
  ~LearningRuns() override { set_threads(0); }

  TrainOptions options(const std::string& learning, const std::string& folder) {
    TrainOptions o = tiny_options(text_, 40);
    o.learning = learning;
    o.batch = 16;  // 25 batches, so that the text begins again
    o.validate_every = 9;
    o.checkpoint_every = 4;
    if (!folder.empty()) o.out = folder_.file(folder + learning);
    return o;
  }
  static TrainResult train(const NetDef& net, TrainOptions o, int64_t stop_after = 1 << 30) {
    std::atomic<bool> stop{false};
    o.stop = &stop;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { stop = p.iteration >= stop_after; };
    return Trainer(net, o, events).run();
  }

  TempFolder folder_;
  std::string text_ = folder_.file("text");
};

TEST_F(LearningRuns, ResumedEndInTheSameBits) {
  for (const std::string learning : {"rtrl", "snap1", "eprop"}) {
    const NetDef net = learning == "rtrl" ? gated_net() : tiny_net();
    const TrainOptions whole = options(learning, "whole-");
    TrainOptions parts = options(learning, "parts-");
    const TrainResult expected = train(net, whole);
    EXPECT_FALSE(train(net, parts, 7).finished);
    parts.resume = true;
    EXPECT_EQ(train(net, parts, 30).iteration, 30);
    parts.learning = "bptt";  // the run says how
    const TrainResult result = train(net, parts);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(saved_bytes(parts.out), saved_bytes(whole.out)) << learning;
    bool carries = false;
    for (const auto& [name, bytes] : saved_bytes(whole.out))
      carries = carries || (name.starts_with("carry/") && name.find("/sensitivity/") != name.npos);
    EXPECT_TRUE(carries) << learning;
  }
}

TEST_F(LearningRuns, DifferFromTruncatedOnes) {
  const double truncated = train(tiny_net(), options("bptt", "")).loss;
  const double snap1 = train(tiny_net(), options("snap1", "")).loss,
               eprop = train(tiny_net(), options("eprop", "")).loss;
  EXPECT_NE(snap1, truncated);
  EXPECT_NE(snap1, eprop);
  EXPECT_LT(snap1, 0.7 * std::log(32.0));
  EXPECT_LT(eprop, 0.7 * std::log(32.0));
}

TEST_F(LearningRuns, RefusesWhatDoesNotGoTogether) {
  const auto error = [&](const std::function<void(TrainOptions&)>& change, const NetDef& net) {
    TrainOptions o = options("rtrl", "");
    change(o);
    return error_text([&] { train(net, o); });
  };
  const auto with = [&](const std::function<void(TrainOptions&)>& change) { return error(change, gated_net()); };
  expect_contains(with([](TrainOptions& o) { o.learning = "rtlr"; }), "there is no way of learning \"rtlr\"");
  expect_contains(with([](TrainOptions& o) { o.precision = "bfloat16"; }),
                  "rtrl does not go together with a precision");
  expect_contains(with([](TrainOptions& o) { o.memory_budget = 1 << 30; }),
                  "does not go together with a memory budget");
  expect_contains(with([&](TrainOptions& o) { o.offload = folder_.file("values"); }), "together with offloading");
  NetDef net = gated_net();
  *net.add_arg() = make_arg("memory_budget_bytes", int64_t{1} << 30);
  expect_contains(error([](TrainOptions&) {}, net), "does not go together with a memory budget");
  expect_contains(error([](TrainOptions&) {}, tiny_net()), "the Jacobian of the state is not diagonal");
  NetDef other = gated_net();
  other.MutableExtension(model)->clear_carry();
  expect_contains(error([](TrainOptions&) {}, other), "h_before");
  NetDef passed_on = parse_net_text(std::string(kGated) + R"(
    op { type: "Tanh" input: "h_last" output: "h_next" })");
  passed_on.MutableExtension(model)->mutable_carry(0)->set_from("h_next");
  expect_contains(error([](TrainOptions&) {}, passed_on),
                  "the state that starts with \"h_before\" has sensitivities, but the model does not carry what the "
                  "network leaves as its last value, \"h_last\"");
}

}  // namespace
}  // namespace stepnet::testing::learning_test
