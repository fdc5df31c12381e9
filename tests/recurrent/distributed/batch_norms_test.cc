// Batch norm by the statistics of all ranks' parts of the batch, against one process with all of it.
#include "recurrent/distributed/batch_norms.h"

#include <gtest/gtest.h>

#include "core/compute/threads.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/distributed/rank_sessions.h"

namespace stepnet::testing::batch_norms_test {
namespace {

// What the mean takes off again, such as a bias, would get a gradient of roundings, of which Adam makes a step.
constexpr const char* kNet = R"(
  name: "normed"
  op { type: "FC" arg { name: "axis" i: 2 } input: "x" input: "V" input: "a" output: "wide" }
  op { type: "SpatialBN" input: "wide" input: "scale" input: "bias" input: "mean" input: "var"
       output: "normed" output: "mean" output: "var" output: "saved" output: "inv" }
  op { type: "Tanh" input: "normed" output: "bent" }
  op { type: "FC" input: "bent" input: "W" input: "b" output: "features_of_b" }
  op { type: "Tanh" input: "features_of_b" output: "features" }
  op { type: "BatchNorm" input: "features" input: "scale_2" input: "bias_2" input: "mean_2" input: "var_2"
       output: "normed_2" output: "mean_2" output: "var_2" output: "saved_2" output: "inv_2" }
  op { type: "FC" input: "normed_2" input: "U" input: "d" output: "scores" }
  op { type: "SoftmaxWithLoss" input: "scores" input: "label" output: "p" output: "loss" }
  [stepnet.model] {
    init {
      op { type: "XavierFill" output: "V" arg { name: "shape" ints: 6 ints: 4 } }
      op { type: "ConstantFill" output: "a" arg { name: "shape" ints: 6 } }
      op { type: "ConstantFill" output: "scale" arg { name: "shape" ints: 3 } arg { name: "value" f: 1 } }
      op { type: "ConstantFill" output: "bias" arg { name: "shape" ints: 3 } }
      op { type: "ConstantFill" output: "mean" arg { name: "shape" ints: 3 } }
      op { type: "ConstantFill" output: "var" arg { name: "shape" ints: 3 } arg { name: "value" f: 1 } }
      op { type: "XavierFill" output: "W" arg { name: "shape" ints: 5 ints: 18 } }
      op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 5 } }
      op { type: "ConstantFill" output: "scale_2" arg { name: "shape" ints: 5 } arg { name: "value" f: 1 } }
      op { type: "ConstantFill" output: "bias_2" arg { name: "shape" ints: 5 } }
      op { type: "ConstantFill" output: "mean_2" arg { name: "shape" ints: 5 } }
      op { type: "ConstantFill" output: "var_2" arg { name: "shape" ints: 5 } arg { name: "value" f: 1 } }
      op { type: "XavierFill" output: "U" arg { name: "shape" ints: 2 ints: 5 } }
      op { type: "ConstantFill" output: "d" arg { name: "shape" ints: 2 } }
    }
    loss: "loss" batch: 8
    data { column: "x" type: "double" }
    data { column: "label" }
  })";

constexpr int64_t kSamples = 18;  // an epoch's last batch has two

std::map<std::string, Tensor> arrays() {
  const Tensor x = normal<double>({kSamples, 3, 4}, 5, 1, 3);
  Tensor label = Tensor::empty(DType::int64, {kSamples});
  for (int64_t i = 0; i < kSamples; ++i) label.data<int64_t>()[i] = x.data<double>()[12 * i] > 1;
  return {{"x", x}, {"label", label}};
}

Model normed_model() {
  Model model = model_of_doubles(parse_net_text(kNet));
  model.batch = 8;
  return model;
}

OptimizerOptions synchronized(OptimizerOptions optimizer) {
  optimizer.batch_norm = "synchronized";
  return optimizer;
}

TEST(SynchronizedTraining, IsThatOfOneProcess) {
  const Model model = normed_model();
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions{.lr = 0.02}, OptimizerOptions{.optimizer = "momentum", .lr = 0.1, .clip = 0.3},
        OptimizerOptions{.lr = 0.02, .accumulate = 2}, OptimizerOptions{.lr = 0.02, .shard = true}}) {
    const auto alone = session_of_samples(model, optimizer, nullptr, arrays()),
               together = session_of_samples(model, synchronized(optimizer), all_ranks(), arrays());
    for (int64_t i = 0; i < 12; ++i) ASSERT_NEAR(together->step(), alone->step(), 1e-12) << i;
    expect_alike(*alone, *together);
    EXPECT_NE(compare(alone->parameters().fetch("mean"), Tensor::zeros(DType::float64, {3}), 0.1), "");
  }
}

// What is compared above is there to be seen.
TEST(SynchronizedTraining, DiffersFromThatByRank) {
  if (!all_ranks()) GTEST_SKIP() << "there is one rank";
  const Model model = normed_model();
  const auto alone = session_of_samples(model, {}, nullptr, arrays()),
             together = session_of_samples(model, {}, all_ranks(), arrays());
  double difference = 0;
  for (int64_t i = 0; i < 3; ++i) difference += std::abs(together->step() - alone->step());
  EXPECT_GT(difference, 1e-3);
}

TEST(SynchronizedTraining, RunningStatisticsAreTheSameOnAllRanks) {
  const auto together = session_of_samples(normed_model(), synchronized({}), all_ranks(), arrays());
  for (int64_t i = 0; i < 6; ++i) together->step();
  for (const char* name : {"mean", "var", "mean_2", "var_2"})
    for (const double value : together->parameters().fetch(name).span<double>())
      EXPECT_EQ(sum_over_ranks(value), value * ranks()) << name;
}

std::string types_of(const NetDef& net) {
  std::string text;
  for (const OperatorDef& op : net.op())
    text += fmt::format("{}({})={}; ", op.type(), fmt::join(op.input(), ","), fmt::join(op.output(), ","));
  return text;
}

TEST(BatchNorms, OfTrainingAreSynchronized) {
  NetDef net = parse_net_text(
      "op { type: 'SpatialBN' input: 'x' input: 's' input: 'b' input: 'm' input: 'v' output: 'y' output: 'm' output: "
      "'v' output: 'c' output: 'i' arg { name: 'order' s: 'NHWC' } } "
      "op { type: 'BatchNorm' input: 'y' input: 's' input: 'b' input: 'm' input: 'v' output: 'z' arg { name: 'is_test' "
      "i: 1 } } op { type: 'Tanh' input: 'z' output: 't' }");
  synchronize_batch_norms(net, "w", "share");
  EXPECT_EQ(types_of(net), "SyncSpatialBN(w,x,s,b,m,v,share)=y,m,v,c,i; BatchNorm(y,s,b,m,v)=z; Tanh(z)=t; ");
  EXPECT_EQ(net.op(0).arg_size(), 1);
}

TEST(BatchNorms, InNetsInsideAreRefused) {
  NetDef net = parse_net_text(
      "op { type: 'If' input: 'c' output: 'y' arg { name: 'then_net' n { name: 'inner' op { type: 'SpatialBN' input: "
      "'x' output: 'y' } } } }");
  expect_contains(error_text([&] { synchronize_batch_norms(net, "w", "share"); }),
                  "SpatialBN \"y\" stands in the net \"inner\" inside another one");
}

TEST(BatchNorms, AnotherWayIsNamed) {
  expect_contains(error_text([&] { check_optimizer({.batch_norm = "synchronised"}); }),
                  "batch norm cannot be \"synchronised\"; it is by-rank or synchronized.");
}

// To the byte, and with as many ranks that are only claimed.
TEST(EstimateOfSynchronizedRanks, IsThePeakOfATrainingSession) {
  const SerialScope serial;
  const OptimizerOptions optimizer = synchronized({});
  Model model = normed_model();
  model.batch = 4;
  auto few = arrays();
  for (auto& [name, values] : few) values = values.rows(0, 16).clone();
  TrainOptions options;
  options.arrays = few;
  options.holdout = 0;
  model.batch = 8 / ranks();
  model.fed = fed_types(load_samples(model, options).training, model.batch);
  expect_peak_as_estimated(model, optimizer,
                           [&] { return session_of_samples(normed_model(), optimizer, all_ranks(), few); });
}

}  // namespace
}  // namespace stepnet::testing::batch_norms_test
