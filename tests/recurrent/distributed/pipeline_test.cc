// Ranks of which each runs its layers on blocks of timesteps, against one process with all layers on all timesteps.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "core/compute/threads.h"
#include "core/net/dataflow.h"
#include "core/operator/dry_run.h"
#include "recurrent/distributed/join_ranks.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/wavefront.h"
#include "stepnet/arguments.h"
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

Model model_of(const NetDef& net) { return in_doubles(read_model(net)); }

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

// All layers start as copies of one that is itself a copy of what no operator reads, and biases of two as parts of one
// tensor.
Model model_of_copies() {
  const std::string stack = with_ones(with_ones(lstm_stack_text(4), "w", "ints: 48 ints: 12"), "b", "ints: 192");
  Model model = model_of(parse_net_text(stack, "stack.pbtxt"));
  std::vector<OperatorDef> copies;
  OperatorDef split;
  split.set_type("Split");
  split.add_input("b");
  *split.add_arg() = make_arg("axis", 0);
  for (OperatorDef& op : *model.init.mutable_op()) {
    const std::string name = op.output(0), kind = name.substr(0, name.rfind('_'));
    if (!name.ends_with("_0") && (kind == "w_ih" || kind == "w_hh" || name == "b_ih_3" || name == "b_hh_3")) {
      OperatorDef& copy = copies.emplace_back();
      copy.set_type("Copy");
      copy.add_input(kind + "_0");
      copy.add_output(name);
    } else if (name == "w_hh_0") {
      OperatorDef& copy = *copies.emplace(copies.begin());
      copy.set_type("Copy");
      copy.add_input("w");
      copy.add_output(name);
    } else if (kind == "b_ih" || kind == "b_hh") {
      if (!name.ends_with("_0")) split.add_output(name);
    }
  }
  copies.push_back(split);
  const auto is_copied = [&](const OperatorDef& op) {
    return std::ranges::any_of(
        copies, [&](const OperatorDef& copy) { return std::ranges::count(copy.output(), op.output(0)) > 0; });
  };
  NetDef init;
  for (const OperatorDef& op : model.init.op())
    if (!is_copied(op)) *init.add_op() = op;
  for (const OperatorDef& op : copies) *init.add_op() = op;
  model.init = init;
  return model;
}

// A rank has its layers only.
TEST(Pipeline, SharesParametersOut) {
  for (const Model& model : {stack_model(), model_of_copies()}) {
    const auto together = stage_session(model, adam(), 3);
    const auto alone = session_of(model, adam(), nullptr);
    const auto own = static_cast<double>(together->parameter_names().size());
    EXPECT_EQ(sum_over_ranks(own), alone->parameter_names().size());
  }
}

// What a rank makes for its own parameters' sake is another rank's to train and to save.
TEST(Pipeline, TrainsParametersThatStartAsThoseOfOtherRanks) { expect_trains_alike(model_of_copies(), adam(), 3, 4); }

// Decay that parameters would feel which no gradient reaches, and the norm of what reaches others.
OptimizerOptions decay() {
  OptimizerOptions optimizer = adam();
  optimizer.optimizer = "adamw";
  optimizer.weight_decay = 0.1;
  optimizer.clip = 0.05;
  return optimizer;
}

TEST(Pipeline, SendsNoGradientsThroughWhatStopsThem) {
  for (const int l : {0, 1, 2}) {
    SCOPED_TRACE(l);
    const std::string stop = "op { type: 'StopGradient' input: 'y_" + std::to_string(l) + "' output: 'between' }";
    expect_trains_alike(model_of(with_between(lstm_stack_text(4), l, stop)), decay(), 3, 4);
    if (HasFailure()) return;
  }
}

Model frozen_model(const std::vector<std::string>& patterns) {
  Model model = model_of(parse_net_text(lstm_stack_text(4), "stack.pbtxt"));
  for (const std::string& pattern : patterns) {
    ParameterGroup& group = model.groups.emplace_back();
    group.set_parameters(pattern);
    group.set_frozen(true);
  }
  return model;
}

// Of the first rank, of one in the middle, of the last one, or of all but one.
TEST(Pipeline, HasRanksWhoseParametersAreFrozen) {
  for (const std::vector<std::string>& patterns :
       std::vector<std::vector<std::string>>{{"E", "*_0", "*_1"},
                                             {"*_1"},
                                             {"*_2", "*_3", "*_out"},
                                             {"E", "*_0", "*_1", "*_2", "w_*_3"},
                                             {"*_1", "*_2", "*_3", "*_out"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(patterns, " ")));
    expect_trains_alike(frozen_model(patterns), decay(), 3, 4);
    OptimizerOptions accumulated = adam();
    accumulated.accumulate = 2;
    accumulated.average = 0.9;
    expect_trains_alike(frozen_model(patterns), accumulated, 2, 4);
    if (HasFailure()) return;
  }
}

TEST(Pipeline, OfRandomFrozenStacksIsOneProcess) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int count = ranks() + below(3);
    std::vector<std::pair<Layer, Behind>> layers;
    for (int l = 0; l < count; ++l) layers.emplace_back(static_cast<Layer>(below(4)), static_cast<Behind>(below(5)));
    const int stopped = below(count);
    const std::string type = below(2) == 0 ? "StopGradient" : "Copy";
    const NetDef net = with_between(stack_text(layers), stopped,
                                    fmt::format("op {{ type: '{}' input: 'y_{}' output: 'between' }}", type, stopped));
    Model model = model_of(net);
    std::string frozen;
    for (int l = -1; l < count; ++l) {
      if (below(2) == 0) continue;
      ParameterGroup& group = model.groups.emplace_back();
      group.set_parameters(l < 0 ? "E" : fmt::format("*_{}", l));
      group.set_frozen(true);
      frozen += group.parameters() + " ";
    }
    SCOPED_TRACE(
        fmt::format("seed {}, {} behind layer {}, frozen {}: {}", seed, type, stopped, frozen, stack_text(layers)));
    expect_trains_alike(model, decay(), 1 + below(7), 3);
    if (HasFailure()) return;
  }
}

// A layer in the middle that is frozen and stops gradients, below one that is trained.
TEST(Pipeline, HasFrozenRanksThatStopGradients) {
  Model model =
      model_of(with_between(lstm_stack_text(4), 1, "op { type: 'StopGradient' input: 'y_1' output: 'between' }"));
  model.groups = frozen_model({"*_1", "*_2"}).groups;
  expect_trains_alike(model, decay(), 3, 4);
}

TEST(Pipeline, RunsOperatorsBetweenLayers) {
  const std::string dropout =
      "op { type: 'Dropout' input: 'y_1' output: 'between' output: 'kept' arg { name: 'ratio' f: 0 } }";
  const std::string concat =
      "op { type: 'Concat' input: 'y_1' input: 'y_1' output: 'two' output: 'sizes' arg { name: 'axis' i: 2 } }"
      "op { type: 'FC' input: 'two' input: 'narrow' output: 'between' arg { name: 'axis' i: 2 } }";
  const std::string add = "op { type: 'Add' input: 'y_1' input: 'place' output: 'between' }";
  const std::string stack =
      with_ones(with_ones(lstm_stack_text(4), "narrow", "ints: 12 ints: 24"), "place", "ints: 3 ints: 12");
  for (const std::string& op : {dropout, concat, add}) {
    SCOPED_TRACE(op);
    expect_trains_alike(model_of(with_between(stack, 1, op)), adam(), 3, 4);
    if (HasFailure()) return;
  }
}

// Two products of one input, which become one.
TEST(Pipeline, RunsLayersWhoseProductsAreMerged) {
  const std::string stack = with_ones(with_ones(stack_text({{Layer::learned_start, Behind::nothing},
                                                            {Layer::lstm, Behind::nothing},
                                                            {Layer::learned_start, Behind::nothing},
                                                            {Layer::lstm, Behind::nothing}}),
                                                "Z_0", "ints: 12 ints: 12"),
                                      "Z_2", "ints: 12 ints: 12");
  NetDef net = parse_net_text(stack, "stack.pbtxt");
  for (OperatorDef& op : *net.mutable_op()) {
    if (!op.HasExtension(recurrent)) continue;
    NetDef& step = *op.MutableExtension(recurrent)->mutable_step_net();
    const std::string weights = step.op(0).input(1) == "A_0" ? "Z_0" : "Z_2";
    OperatorDef product = step.op(0), gate = step.op(3);
    product.set_input(1, weights);
    product.set_output(0, "z_t");
    gate.set_input(0, "z_t");
    gate.set_output(0, "g_t");
    step.mutable_op(2)->add_input("g_t");
    *step.add_op() = product;
    *step.add_op() = gate;
    std::rotate(step.mutable_op()->begin(), step.mutable_op()->end() - 2, step.mutable_op()->end());
    op.add_input(weights);
  }
  expect_trains_alike(model_of(net), adam(), 3, 4);
}

// Each rank has all layers that read one parameter.
TEST(Pipeline, KeepsLayersWithSharedParametersTogether) {
  std::string stack = lstm_stack_text(ranks() + 1);
  NetDef net = parse_net_text(stack, "stack.pbtxt");
  for (OperatorDef& op : *net.mutable_op())
    for (std::string& name : *op.mutable_input())
      if (name == "w_ih_1" || name == "b_hh_1") name.back() = '0';
  expect_trains_alike(model_of(net), adam(), 3, 4);
}

int64_t live() { return allocator(Device{}).counters().live; }

TEST(Pipeline, TakesWhatIsEstimated) {
  const SerialScope serial;
  const Model frozen = frozen_model({"E", "*_0", "*_1"});
  for (const auto& [whole, blocks] :
       {std::pair{stack_model(), 1}, {stack_model(), 3}, {model_of_copies(), 3}, {frozen, 3}}) {
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

// Of what it receives, in an estimate, and of nothing else.
TEST(Pipeline, SaysTheTypesOfWhatComes) {
  for (const Model& whole : {stack_model(), frozen_model({"E", "*_0", "*_1"})}) {
    DryScope scope;
    const auto session = training_net_session({.model = stage_model(whole, 3), .optimizer = adam()});
    const std::set<std::string> made = written_names(session->net->def());
    size_t received = 0;
    for (const OperatorDef& op : session->net->def().op()) received += op.type() == "ReceiveTensor" ? 1 : 0;
    EXPECT_EQ(scope.bounds.size(), received);
    for (const auto& [name, most] : scope.bounds) EXPECT_EQ(made.count(name), 1U) << name;
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
