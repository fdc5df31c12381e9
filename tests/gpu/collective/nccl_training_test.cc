// Ranks that train together, each on a GPU of its own, against one process on the CPU with the whole batch. Where the
// device is imitated, so is NCCL.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/operator/nets_inside.h"
#include "recurrent/distributed/join_ranks.h"
#include "tests/core/errors.h"
#include "tests/gpu/collective/gpu_ranks.h"
#include "tests/recurrent/distributed/rank_sessions.h"

namespace stepnet::testing::nccl_training_test {
namespace {

using NcclTraining = GpuRanksTest;
constexpr int kFewSteps = 25;  // the imitated device is slow

// Null for one rank, which trains on its GPU alone.
RanksPtr gpu_ranks() {
  static auto& ranks = *new RanksPtr(ranks_on(all_ranks(), own_gpu()));  // outlives CUDA's own objects
  return ranks;
}

NetDef net_on_gpu() {
  NetDef net = tiny_net();
  for_each_net(net, [](NetDef& inner) {
    inner.mutable_device_option()->set_device_type(CUDA);
    inner.mutable_device_option()->set_device_id(own_gpu().index);
  });
  return net;
}

void expect_trains_alike(const OptimizerOptions& optimizer, const Model& on_cpu, const Model& on_gpu,
                         double tolerance) {
  const auto alone = session_of(on_cpu, optimizer, nullptr), together = session_of(on_gpu, optimizer, gpu_ranks());
  double first = 0, loss = 0;
  for (int i = 0; i < kFewSteps; ++i) {
    loss = alone->step();
    if (i == 0) first = loss;
    ASSERT_NEAR(together->step(), loss, tolerance) << i;
    ASSERT_EQ(together->skipped(), alone->skipped()) << i;
  }
  EXPECT_LT(loss, 0.95 * first);
  for (const std::string& name : together->parameter_names())
    EXPECT_EQ(together->parameters().fetch(name).device(), own_gpu()) << name;
  expect_alike(*alone, *together, tolerance);
}

void expect_doubles_train_alike(const OptimizerOptions& optimizer) {
  expect_trains_alike(optimizer, model_of_doubles(), model_of_doubles(net_on_gpu()), 1e-11);
}

TEST_F(NcclTraining, IsThatOfOneProcess) {
  OptimizerOptions optimizer;
  optimizer.lr = 0.05;
  expect_doubles_train_alike(optimizer);
}

TEST_F(NcclTraining, ClipsTheNormOfTheSum) {
  OptimizerOptions optimizer;
  optimizer.optimizer = "momentum";
  optimizer.lr = 0.5;
  optimizer.clip = 0.3;
  expect_doubles_train_alike(optimizer);
}

TEST_F(NcclTraining, AddsGradientsOfSeveralBatchesUp) {
  OptimizerOptions optimizer;
  optimizer.lr = 0.05;
  optimizer.accumulate = 2;
  optimizer.average = 0.9;
  expect_doubles_train_alike(optimizer);
}

TEST_F(NcclTraining, ScalesTheLoss) {
  OptimizerOptions optimizer;
  optimizer.optimizer = "sgd";
  optimizer.lr = 0.5;
  optimizer.loss_scale = 1024;
  Model on_cpu = read_model(tiny_net()), on_gpu = read_model(net_on_gpu());
  on_cpu.batch = on_gpu.batch = 12;
  expect_trains_alike(optimizer, on_cpu, on_gpu, 1e-3);
}

// Gradients of halves overflow, of some ranks or all: all leave out the same steps, and stay alike.
TEST_F(NcclTraining, AgreesOnStepsThatOverflow) {
  OptimizerOptions optimizer;
  optimizer.loss_scale = 0x1p24;
  optimizer.dynamic_scale = true;
  Model model = read_model(net_on_gpu());
  model.batch = 12;
  use_precision(model, DType::float16);
  const auto together = session_of(model, optimizer, gpu_ranks());
  const int steps = 20;
  int skipped = 0;
  for (int i = 0; i < steps; ++i) {
    together->step();
    EXPECT_EQ(sum_over_ranks(together->skipped()), together->skipped() ? ranks() : 0) << i;
    skipped += together->skipped();
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, steps);
  EXPECT_LT(together->loss_scale(), optimizer.loss_scale);
  if (!gpu_ranks()) return;
  for (const std::string& name : together->parameter_names()) {
    const Tensor own = on_device(together->parameters().fetch(name), {});
    Tensor first = Tensor::empty(own.dtype(), own.shape());
    first.copy_from(own);
    gpu_ranks()->broadcast(first);
    EXPECT_EQ(compare(own, first, 0), "") << name;
  }
}

TEST_F(NcclTraining, HasTheSameBitsInEachRun) {
  const Model model = model_of_doubles(net_on_gpu());
  OptimizerOptions optimizer;
  const auto one = session_of(model, optimizer, gpu_ranks());
  for (int i = 0; i < 5; ++i) one->step();
  const auto first = one->save();
  const auto two = session_of(model, optimizer, gpu_ranks());
  for (int i = 0; i < 5; ++i) two->step();
  for (const auto& [name, value] : two->save())
    EXPECT_EQ(std::memcmp(value.raw(), first.at(name).raw(), value.bytes()), 0) << name;
}

// The first one's parameters are everybody's, whatever the others drew.
TEST_F(NcclTraining, StartsWithTheParametersOfTheFirst) {
  if (!gpu_ranks()) GTEST_SKIP() << "there is one rank";
  Model model = model_of_doubles(net_on_gpu());
  auto& fill = *model.init.mutable_op(0)->mutable_arg(1);
  const float first = fill.floats(0);
  fill.set_floats(0, first + static_cast<float>(rank()));
  const auto made = session_of(model, {}, gpu_ranks());
  EXPECT_EQ(on_device(made->parameters().fetch(model.init.op(0).output(0)), {}).data<double>()[0], first);
}

// The trainer: ranks go on from a checkpoint in which the first one's GPU has another number than theirs.
TEST_F(NcclTraining, LeavesTheFolderOfOneProcess) {
  const TempFolder folder;
  const std::string text = folder.file("text");
  write_all(text, tiny_text());
  const auto train = [&](const NetDef& net, const std::string& out, int64_t iterations, RanksPtr together,
                         bool resume) {
    TrainOptions options = tiny_options(text, iterations);
    options.batch = 12;
    options.out = folder.file(out);
    options.resume = resume;
    options.ranks = std::move(together);
    return Trainer(net, options, {}).run();
  };
  const TrainResult alone = train(tiny_net(), "alone", 12, nullptr, false);
  train(net_on_gpu(), "together", 6, gpu_ranks(), false);
  const TrainResult together = train(net_on_gpu(), "together", 12, gpu_ranks(), true);
  EXPECT_NEAR(together.loss, alone.loss, 1e-4);
  EXPECT_NEAR(*together.validation_loss, *alone.validation_loss, 1e-4);
  if (rank() != 0) {
    EXPECT_FALSE(std::filesystem::exists(folder.file("together")));
    return;
  }
  const auto one = load_latest(folder.file("alone")), other = load_latest(folder.file("together"));
  ASSERT_TRUE(one && other);
  for (const auto& [name, value] : one->contents.tensors)
    EXPECT_EQ(compare(value, other->contents.tensors.at(name), 1e-3), "") << name;
}

TEST_F(NcclTraining, RefusesWhatItDoesNotDo) {
  if (!gpu_ranks()) GTEST_SKIP() << "there is one rank";
  const TempFolder folder;
  write_all(folder.file("text"), tiny_text());
  const auto refusal = [&](const auto& change) {
    TrainOptions options = tiny_options(folder.file("text"), 2);
    options.batch = 12;
    options.ranks = gpu_ranks();
    change(options);
    return error_text([&] { Trainer(net_on_gpu(), options, {}); });
  };
  expect_contains(refusal([](TrainOptions& o) { o.optimizer.shard = true; }),
                  "does not go together with parts of the optimizer's state (--shard-optimizer) on GPUs");
  expect_contains(refusal([](TrainOptions& o) { o.optimizer.reduce = "bfloat16"; }),
                  "gradients that are added up in another type (--reduce) on GPUs");
  expect_contains(refusal([](TrainOptions& o) { o.ranks = all_ranks(); }),
                  fmt::format("tensors of {} cannot be added up over them", own_gpu()));
  const Device place = rank() == 0 ? Device{} : own_gpu();
  expect_contains(error_text([&] { ranks_on(all_ranks(), place); }),
                  fmt::format("{} of {} ranks would train on a GPU, and the others on the CPU", ranks() - 1, ranks()));
}

}  // namespace
}  // namespace stepnet::testing::nccl_training_test
