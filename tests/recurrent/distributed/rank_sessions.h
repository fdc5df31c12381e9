// Training sessions of one process and of all ranks, for tests that compare them. Threads: one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "recurrent/distributed/join_ranks.h"
#include "recurrent/distributed/world_ranks.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/sample_data.h"
#include "recurrent/train/stepper.h"
#include "recurrent/train/text_batches.h"
#include "stepnet/matmul.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing {

constexpr int64_t kSteps = 100;

inline RanksPtr all_ranks() {
  static const RanksPtr ranks = ranks_of(create_world(default_world_timeout()));
  return ranks;
}

// The model with parameters of doubles, so that no sum rounds in a way that shows.
inline Model in_doubles(Model model) {
  Workspace workspace;
  RunContext run;
  run_net_once(model.init, workspace, run, NetOptions{.force_cpu = true});
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
  return model;
}

inline Model model_of_doubles(const NetDef& net = tiny_net()) {
  Model model = in_doubles(read_model(net));
  model.batch = 12;  // for one to four ranks
  return model;
}

inline TextStreams streams_of(const Model& model) {
  static const std::string text = tiny_text();
  return TextStreams(Vocabulary::of_text(text).encode(text, "text"), model.batch, model.timesteps, "text");
}

// A session of this process alone, or of all ranks.
inline std::unique_ptr<TrainingSession> session_of(const Model& whole, const OptimizerOptions& optimizer,
                                                   RanksPtr together) {
  Model model = whole;
  Shard shard;
  if (together) {
    shard = {together->rank(), together->size()};
    model.ranks = together;
    model.batch = whole.batch / together->size();
  }
  return std::make_unique<TrainingSession>(model, optimizer, text_batches(model, streams_of(whole), shard), 3, kSteps);
}

// The same of a model that is trained on samples, of which an epoch's last batch may be smaller.
inline std::unique_ptr<TrainingSession> session_of_samples(const Model& whole, const OptimizerOptions& optimizer,
                                                           RanksPtr together,
                                                           const std::map<std::string, Tensor>& arrays) {
  TrainOptions options;
  options.arrays = arrays;
  options.holdout = 0;
  const SampleData data = load_samples(whole, options);
  Model model = whole;
  Shard shard;
  if (together) {
    shard = {together->rank(), together->size()};
    model.ranks = together;
    model.batch = (whole.batch + together->size() - 1) / together->size();
  }
  model.fed = fed_types(data.training, model.batch);
  return std::make_unique<TrainingSession>(
      model, optimizer,
      std::make_unique<SampleBatches>(data.training, data.trained, whole.batch, SampleOrder::shuffled, 7, shard), 3,
      kSteps);
}

// What is estimated of a rank, which has this model, is what its session takes, to the byte; and of as many ranks that
// are only claimed the same.
inline void expect_peak_as_estimated(Model model, const OptimizerOptions& optimizer,
                                     const std::function<std::unique_ptr<TrainingSession>()>& make) {
  Allocator& memory = allocator(Device{});
  model.ranks = all_ranks();
  const int64_t peak = training_peak({.model = model, .optimizer = optimizer});
  model.ranks = claim_ranks(ranks());
  claim_ranks(1);
  EXPECT_EQ(training_peak({.model = model, .optimizer = optimizer}), peak);
  forget_products();
  memory.reset_peak();
  const int64_t base = memory.counters().live;
  const auto session = make();
  for (int i = 0; i < 4; ++i) session->step();
  EXPECT_EQ(memory.counters().peak - base, peak);
}

inline void expect_alike(TrainingSession& a, TrainingSession& b, double tolerance = 1e-12) {
  const auto one = a.save(), other = b.save();
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, value] : one) EXPECT_EQ(compare(value, other.at(name), tolerance), "") << name;
}

}  // namespace stepnet::testing
