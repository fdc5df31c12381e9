// Estimated memory against real runs: every operator's live bytes before, in and behind it, forward alone and training.
#include "recurrent/train/memory_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/compute/threads.h"
#include "core/operator/dry_run.h"
#include "core/operator/observer.h"
#include "recurrent/form/short_form.h"
#include "recurrent/train/stepper.h"
#include "stepnet/matmul.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/estimate_testing.h"
#include "tests/recurrent/cell_files.h"
#include "tests/recurrent/estimate_nets.h"
#include "tests/recurrent/tiny_model.h"
#include "tools/source_path.h"

namespace stepnet::testing::memory_budget_test {
namespace {

constexpr uint64_t kDraws = 5;

std::string compare_forward(const EstimateNet& n) {
  NetDef net = n.net;
  expand_recurrent(net);
  ForwardOptions options{.feeds = n.data};
  options.feeds.insert(n.parameters.begin(), n.parameters.end());
  return compare_with_real([&] { return forward_session(net, options); });
}

std::string compare_training(const EstimateNet& n, const std::string& optimizer) {
  TrainingEstimate training{.model = model_of(n.net, {}, n.loss)};
  training.optimizer.optimizer = optimizer;
  training.feeds = n.data;
  training.parameters = n.parameters;
  return compare_with_real([&] { return training_net_session(training); });
}

class TrainingEstimateOf : public ::testing::TestWithParam<uint64_t> {
 protected:
  void TearDown() override { set_threads(0); }
};

TEST_P(TrainingEstimateOf, NetsIsExact) {
  for (const EstimateNet& n : estimate_nets(GetParam())) {
    SCOPED_TRACE(n.name);
    EXPECT_EQ(compare_forward(n), "") << "forward";
    EXPECT_EQ(compare_training(n, "adam"), "") << "training";
  }
}

TEST_P(TrainingEstimateOf, CellsIsExact) {
  for (const EstimateNet& n : estimate_cells(GetParam())) {
    SCOPED_TRACE(n.name);
    set_threads(1 + static_cast<int>(GetParam() % 2));
    EXPECT_EQ(compare_forward(n), "") << "forward";
    EXPECT_EQ(compare_training(n, "sgd"), "") << "training";
  }
}

TEST_P(TrainingEstimateOf, PassesIsExact) {
  if (GetParam() != 3) return;
  for (const EstimateNet& n : estimate_cells(GetParam()))
    for (const std::vector<std::string>& passes : pass_choices()) {
      SCOPED_TRACE(n.name + text_of(passes));
      EstimateNet without = n;
      without.net = without_passes(n.net, passes);
      EXPECT_EQ(compare_training(without, "sgd"), "");
    }
}

TEST_P(TrainingEstimateOf, NetworksInStepNetsIsExact) {
  const Cell inner = {.step = {"a = FC(g_prev, U, d) axis=2", "m = Mul(a, q)", "z = Sum(m, x)", "g = Tanh(z)"},
                      .states = {{"g_prev", "g", "h_prev", "g_all", "g_last"}},
                      .sequences = {{"Q", "q"}}};
  OperatorDef nested = recurrent_net(inner, {}).op(0);
  nested.set_name("inner");
  const Cell outer = {.step = {"g_all = Nested()", "s = Sum(g_last, x)", "h = Tanh(s)"},
                      .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
                      .nested = {nested}};
  const auto draw = static_cast<int64_t>(GetParam());
  const int64_t steps = 3 + 9 * draw, batch = 1 + 2 * draw, h = 5 + 3 * draw;
  const auto type = [](std::initializer_list<int64_t> dims) { return TensorType::of(DType::float32, Shape(dims)); };
  const EstimateNet n{"nested",
                      recurrent_net(outer, {}),
                      {{"X", type({steps, batch, h})}, {"Q", type({1 + draw, batch, h})}, {"h0", type({batch, h})}},
                      {{"U", type({h, h})}, {"d", type({h})}},
                      "h_all"};
  EXPECT_EQ(compare_forward(n), "");
  EXPECT_EQ(compare_training(n, "sgd"), "");
}

TEST_P(TrainingEstimateOf, RecomputedValuesIsExact) {
  NetDef net = load_net(source_path("tools/examples/lstm.pbtxt"));
  recurrent_op(net).MutableExtension(recurrent)->add_recompute("gates");
  const auto draw = static_cast<int64_t>(GetParam());
  const int64_t steps = 11 * draw, batch = 1 + 3 * draw, in = 4 + draw, h = 3 + 5 * draw;  // of no timesteps, too
  const auto type = [](std::initializer_list<int64_t> dims) { return TensorType::of(DType::float32, Shape(dims)); };
  const EstimateNet n{
      "recompute",
      net,
      {{"x", type({steps, batch, in})}, {"h0", type({1, batch, h})}, {"c0", type({1, batch, h})}},
      {{"W_x", type({4 * h, in})}, {"b_x", type({4 * h})}, {"W_h", type({4 * h, h})}, {"b_h", type({4 * h})}},
      "h_all"};
  EXPECT_EQ(compare_training(n, "sgd"), "");
  EXPECT_EQ(compare_forward(n), "");
}

TEST_P(TrainingEstimateOf, ALanguageModelIsExact) {
  const NetDef net = load_net(source_path("tools/examples/char_lstm.pbtxt"));
  TrainingEstimate training{.model = read_model(net)};
  const auto draw = static_cast<int64_t>(GetParam());
  training.model.timesteps = 1 + 13 * draw;
  training.model.batch = 1 + 17 * draw % 40;
  for (const std::string& optimizer : optimizer_names()) {
    SCOPED_TRACE(optimizer);
    training.optimizer.optimizer = optimizer;
    EXPECT_EQ(compare_with_real([&] { return training_net_session(training); }), "");
  }
}

// Its scores, of at least 16 MiB, exist for a block of rows at a time.
TEST_P(TrainingEstimateOf, ALossInBlocksIsExact) {
  const auto draw = static_cast<int64_t>(GetParam());
  TrainingEstimate training{.model = read_model(tiny_net(9001 + static_cast<int>(137 * draw)))};
  training.model.timesteps = 16 + draw;
  training.model.batch = 32;
  set_threads(1 + static_cast<int>(GetParam() % 2));
  for (const char* optimizer : {"sgd", "adam"}) {
    training.optimizer.optimizer = optimizer;
    for (const bool plan : {false, true}) {
      training.plan_memory = plan;
      const auto session = [&] {
        auto made = training_net_session(training);
        EXPECT_TRUE(std::ranges::any_of(made->net->def().op(),
                                        [](const OperatorDef& op) { return op.type() == "FCSoftmaxWithLoss"; }));
        return made;
      };
      EXPECT_EQ(compare_with_real(session), "") << optimizer << plan;
    }
  }
}

// Every kind of layer, in both directions, one on another: all passes of step programs, wavefronts, and lanes.
TEST_P(TrainingEstimateOf, LayersIsExact) {
  constexpr const char* kNet = R"(
    name: "layers" external_output: "Y"
    op {{ type: "{}" input: "X"{} {} output: "Y" output: "h_n" {}
         arg {{ name: "hidden" i: {} }} arg {{ name: "layers" i: {} }} arg {{ name: "bidirectional" i: {} }} }})";
  const int seed = static_cast<int>(GetParam());
  for (const std::string type : {"RNN", "GRU", "LSTM"})
    for (const int layers : {1, 3})
      for (const bool both : {false, true}) {
        const int64_t steps = 3 + 17 * seed, batch = 1 + 7 * seed, in = 5 + seed, hidden = 4 + 9 * seed;
        SCOPED_TRACE(fmt::format("{}, {} layers, {} directions", type, layers, both ? 2 : 1));
        EstimateNet net{type, {}, {{"X", TensorType::of(DType::float32, {steps, batch, in})}}, {}, "Y"};
        const int64_t gates = type == "RNN" ? 1 : type == "GRU" ? 3 : 4;
        std::string weights;
        for (int layer = 0; layer < layers; ++layer)
          for (int direction = 0; direction < (both ? 2 : 1); ++direction)
            for (const std::string name : {"w_ih", "w_hh", "b_ih", "b_hh"}) {
              const std::string blob = fmt::format("{}_{}_{}", name, layer, direction);
              const int64_t width = name == "w_hh" ? hidden : layer == 0 ? in : hidden * (both ? 2 : 1);
              net.parameters[blob] = name[0] == 'w' ? TensorType::of(DType::float32, {gates * hidden, width})
                                                    : TensorType::of(DType::float32, {gates * hidden});
              weights += fmt::format(" input: \"{}\"", blob);
            }
        net.net =
            parse_net_text(fmt::format(kNet, type, type == "LSTM" ? " input: \"\" input: \"\"" : " input: \"\"",
                                       weights, type == "LSTM" ? "output: \"c_n\"" : "", hidden, layers, int{both}));
        set_threads(1 + seed % 2);
        EXPECT_EQ(compare_forward(net), "") << "forward";
        EXPECT_EQ(compare_training(net, "momentum"), "") << "training";
      }
}

// By hand, for FC, Tanh and FC on 32 samples of 17 numbers, 33 inside and 5 out; the sizes are rounded up to 64 bytes.
TEST(TrainingEstimate, SaysWhoKeepsWhat) {
  EstimateNet n{"mlp",
                parse_net_text(R"(
    op { type: "FC" input: "X" input: "W1" input: "b1" output: "a" }
    op { type: "Tanh" input: "a" output: "h" }
    op { type: "FC" input: "h" input: "W2" input: "b2" output: "Y" })"),
                {{"X", TensorType::of(DType::float32, {32, 17})}},
                {{"W1", TensorType::of(DType::float32, {33, 17})},
                 {"b1", TensorType::of(DType::float32, {33})},
                 {"W2", TensorType::of(DType::float32, {5, 33})},
                 {"b2", TensorType::of(DType::float32, {5})}},
                "Y"};
  TrainingEstimate training{.model = model_of(n.net, {}, "")};
  training.feeds = n.data;
  training.parameters = n.parameters;
  DryScope scope;
  const auto session = training_net_session(training);
  const Estimate estimate = estimate_session(*session, scope);
  const OpEstimate &fc = estimate.ops[0], &tanh = estimate.ops[1], &last = estimate.ops[2];
  constexpr int64_t kX = 2176, kInside = 4224, kW2 = 704;
  EXPECT_EQ(fc.inputs_kept, kX);
  EXPECT_EQ(fc.outputs, kInside);
  EXPECT_EQ(fc.outputs_kept, 0);  // Tanh's gradient reads what Tanh makes
  EXPECT_EQ(tanh.inputs_kept, 0);
  EXPECT_EQ(tanh.outputs_kept, kInside);
  EXPECT_EQ(last.inputs_kept, kInside + kW2);
  EXPECT_EQ(last.outputs_kept, 0);
  EXPECT_EQ(fc.flops, 2.0 * 32 * 33 * 17 + 32 * 33);
  EXPECT_EQ(fc.bytes_moved, 4.0 * (32 * 17 + 33 * 17 + 33 + 32 * 33));
  const auto kind = [&](MemoryKind k) { return estimate.totals[static_cast<size_t>(k)]; };
  constexpr int64_t kParameters = 2304 + 192 + 704 + 64;
  EXPECT_EQ(kind(MemoryKind::parameter), kParameters);
  EXPECT_EQ(kind(MemoryKind::gradient), kParameters);
  EXPECT_EQ(kind(MemoryKind::optimizer), 2 * kParameters + 64);  // two moments, and the number of the iteration
  EXPECT_EQ(kind(MemoryKind::input), kX);
  EXPECT_EQ(kind(MemoryKind::kept), kInside);
  const std::vector<KeptValue> kept = kept_values(*session);
  const auto h = std::ranges::find(kept, "h", &KeptValue::name);
  ASSERT_NE(h, kept.end());
  EXPECT_EQ(h->reasons, (std::vector<std::string>{"the gradient of W2 by FC (operator 2)",
                                                  "the gradient of a by Tanh (operator 1)"}));
}

// A value that attention reads three times, once by another name, is one value.
TEST(TrainingEstimate, AValueOfSeveralReadersAndNamesIsKeptOnce) {
  const auto type = [](std::initializer_list<int64_t> dims) { return TensorType::of(DType::float32, Shape(dims)); };
  EstimateNet n{"three",
                parse_net_text(R"(
    op { type: "FC" input: "X" input: "W" input: "b" output: "a" }
    op { type: "Tanh" input: "a" output: "h" }
    op { type: "Alias" input: "h" output: "again" }
    op { type: "FC" input: "h" input: "Wq" input: "bq" output: "q" }
    op { type: "FC" input: "h" input: "Wk" input: "bk" output: "k" }
    op { type: "FC" input: "again" input: "Wv" input: "bv" output: "v" }
    op { type: "Sum" input: "q" input: "k" input: "v" output: "Y" })"),
                {{"X", type({32, 17})}},
                {{"W", type({33, 17})},
                 {"b", type({33})},
                 {"Wq", type({5, 33})},
                 {"bq", type({5})},
                 {"Wk", type({5, 33})},
                 {"bk", type({5})},
                 {"Wv", type({5, 33})},
                 {"bv", type({5})}},
                "Y"};
  EXPECT_EQ(compare_training(n, "sgd"), "");
  TrainingEstimate training{.model = model_of(n.net, {}, "")};
  training.feeds = n.data;
  training.parameters = n.parameters;
  DryScope scope;
  const auto session = training_net_session(training);
  const Estimate estimate = estimate_session(*session, scope);
  EXPECT_EQ(estimate.totals[static_cast<size_t>(MemoryKind::kept)], 4224);
  int64_t outputs_kept = 0;
  for (const OpEstimate& e : estimate.ops) outputs_kept += e.backward ? 0 : e.outputs_kept;
  EXPECT_EQ(outputs_kept, 4224);
}

// Per timestep two products with a bias, their sum, and what LSTMUnit says; by hand, whatever passes make of it.
TEST(TrainingEstimate, CountsTheArithmeticOfAnLstm) {
  constexpr int64_t T = 1000, B = 6, I = 5, H = 7;
  NetDef net = load_net(source_path("tools/examples/lstm.pbtxt"));
  expand_recurrent(net);
  const auto type = [](std::initializer_list<int64_t> dims) { return TensorType::of(DType::float32, Shape(dims)); };
  const ForwardOptions options{
      .feeds = {{"x", type({T, B, I})}, {"h0", type({1, B, H})}, {"c0", type({1, B, H})}},
      .parameters = {
          {"W_x", type({4 * H, I})}, {"b_x", type({4 * H})}, {"W_h", type({4 * H, H})}, {"b_h", type({4 * H})}}};
  const NetDef unit = parse_net_text(
      "op { type: 'LSTMUnit' input: 'h' input: 'c' input: 'g' input: 't'"
      " output: 'h1' output: 'c1' arg { name: 'sequence_lengths' i: 0 } }");
  const TensorType state = type({1, B, H});
  const std::vector<TensorType> in = {state, state, type({1, B, 4 * H}), TensorType::of(DType::int32, Shape{1})};
  const double of_unit = op_flops(bind_op(unit.op(0), "n", 0), in, std::vector<TensorType>{state, state});
  DryScope scope;
  const auto session = forward_session(net, options);
  const Estimate estimate = estimate_session(*session, scope);
  EXPECT_EQ(estimate.product_flops, 2.0 * T * B * 4 * H * (I + H));
  EXPECT_EQ(of_unit, 16.0 * B * H);
  EXPECT_EQ(estimate.flops, estimate.product_flops + T * (3.0 * B * 4 * H + of_unit));
}

// A value is kept if its storage is still there when the backward pass begins.
class Watch : public NetObserver {
 public:
  explicit Watch(NetSession& session) : session_(session) {}
  void before(const BoundOp& op) override {
    if (op.index == session_.differentiated.first_gradient_op) count_kept();
  }
  void after(const BoundOp& op) override {
    if (op.index >= session_.differentiated.first_gradient_op) return;
    for (const std::string& name : op.def.output()) note(op.index, name);
  }
  std::map<int, int64_t> kept;

 private:
  void note(int op, const std::string& name) {
    const auto& outside = session_.net->def().external_output();  // these stay, whoever reads them
    const Blob* blob = name.empty() ? nullptr : session_.blobs.find(name);
    if (!blob || !blob->is_tensor() || std::ranges::find(outside, name) != outside.end()) return;
    const auto& storage = std::as_const(*blob).tensor().storage();
    if (storage && seen_.insert(storage.get()).second) made_[op].push_back(storage);
  }

  void count_kept() {
    for (const auto& [op, storages] : made_)
      for (const std::weak_ptr<Storage>& s : storages)
        if (const auto held = s.lock()) kept[op] += (static_cast<int64_t>(held->bytes()) + 63) / 64 * 64;
  }

  NetSession& session_;
  std::set<const Storage*> seen_;
  std::map<int, std::vector<std::weak_ptr<Storage>>> made_;
};

TEST_P(TrainingEstimateOf, WhatIsKeptIsStillThereWhenTheBackwardPassBegins) {
  for (const EstimateNet& n : estimate_nets(GetParam())) {
    if (n.name == "encoder_decoder") continue;  // states stand in blobs of their own
    SCOPED_TRACE(n.name);
    TrainingEstimate training{.model = model_of(n.net, {}, n.loss)};
    training.feeds = n.data;
    training.parameters = n.parameters;
    std::map<int, int64_t> estimated;
    {
      DryScope scope;
      const auto session = training_net_session(training);
      for (const OpEstimate& e : estimate_session(*session, scope).ops)
        if (!e.backward && e.outputs_kept > 0) estimated[e.index] = e.outputs_kept;
    }
    const auto session = training_net_session(training);
    Watch watch(*session);
    RunContext run;
    run.observer = &watch;
    session->net->run(run);
    EXPECT_EQ(watch.kept, estimated);
  }
}

TEST_P(TrainingEstimateOf, KindsAddUpToWhatIsLive) {
  std::vector<EstimateNet> nets = estimate_nets(GetParam());
  for (EstimateNet& n : estimate_cells(GetParam())) nets.push_back(std::move(n));
  for (const EstimateNet& n : nets) {
    SCOPED_TRACE(n.name);
    DryScope scope;
    TrainingEstimate training{.model = model_of(n.net, {}, n.loss)};
    training.feeds = n.data;
    training.parameters = n.parameters;
    const auto session = training_net_session(training);
    const Estimate estimate = estimate_session(*session, scope);
    for (const OpEstimate& e : estimate.ops) {
      EXPECT_EQ(std::accumulate(e.at_peak.begin(), e.at_peak.end(), int64_t{0}), e.memory.peak) << e.type;
      EXPECT_LE(e.outputs_kept, e.outputs) << e.type;
      EXPECT_LE(e.inputs_kept, e.memory.before) << e.type;
    }
    const int64_t kept = estimate.ops[static_cast<size_t>(session->differentiated.first_gradient_op)]
                             .at_peak[static_cast<size_t>(MemoryKind::kept)];
    EXPECT_GT(kept, 0);
  }
}

// What `stepnet train` itself takes, by the allocator, with all that is around the net.
TEST(TrainingEstimate, IsThePeakOfATrainingSession) {
  Model model = read_model(load_net(source_path("tools/examples/char_lstm.pbtxt")));
  model.timesteps = 20;
  model.batch = 9;
  const int64_t peak = training_peak({.model = model});
  forget_products();
  allocator(Device{}).reset_peak();
  const int64_t base = allocator(Device{}).counters().live;
  const std::string text(1000, 'x');
  TrainingSession session(model, {}, TextStreams(text, model.batch, model.timesteps, "text"), 1, 1000);
  for (int i = 0; i < 4; ++i) session.step();
  EXPECT_EQ(allocator(Device{}).counters().peak - base, peak);
}

// A step of several batches, or of a scaled loss, is in two parts, of which the first one's memory stays.
TEST(TrainingEstimate, IsThePeakOfATrainingSessionInTwoParts) {
  const SerialScope serial;
  for (const auto& [accumulate, scale] : {std::pair{1, 0.0}, {2, 0.0}, {3, 0.0}, {5, 0.0}, {1, 8.0}})
    for (const char* optimizer : {"sgd", "adam"})
      for (const int64_t timesteps : {3, 40}) {
        SCOPED_TRACE(fmt::format("{} batches, scale {}, {}, {} timesteps", accumulate, scale, optimizer, timesteps));
        Model model = read_model(tiny_net());
        model.timesteps = timesteps;
        model.batch = 9;
        const OptimizerOptions options{.optimizer = optimizer, .accumulate = accumulate, .loss_scale = scale};
        const int64_t peak = training_peak({.model = model, .optimizer = options});
        forget_products();
        allocator(Device{}).reset_peak();
        const int64_t base = allocator(Device{}).counters().live;
        const std::string text(1000, 'x' % 32);
        TrainingSession session(model, options, TextStreams(text, model.batch, model.timesteps, "text"), 1, 1000);
        for (int i = 0; i < 4; ++i) session.step();
        EXPECT_EQ(allocator(Device{}).counters().peak - base, peak);
      }
}

TEST(TrainingEstimate, IsThePeakOfATrainingSessionWithALossInBlocks) {
  Model model = read_model(tiny_net(9001));
  model.timesteps = 16;
  model.batch = 32;
  const int64_t peak = training_peak({.model = model}), scores = int64_t{9001} * 16 * 32 * 4;
  forget_products();
  allocator(Device{}).reset_peak();
  const int64_t base = allocator(Device{}).counters().live;
  const std::string text(1000, 'x' % 32);
  TrainingSession session(model, {}, TextStreams(text, model.batch, model.timesteps, "text"), 1, 1000);
  for (int i = 0; i < 4; ++i) session.step();
  EXPECT_EQ(allocator(Device{}).counters().peak - base, peak);
  EXPECT_LT(peak, scores);
}

INSTANTIATE_TEST_SUITE_P(Draws, TrainingEstimateOf, ::testing::Range(uint64_t{0}, kDraws));

}  // namespace
}  // namespace stepnet::testing::memory_budget_test
